"""Properties of our answer to any file, by itself and compared with onnx's reading of the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.group.keys import KEYS
from analyzer.account.ledger import Ledger
from analyzer.errors import LedgerError, OnnxLedgerError
from analyzer.formats import FORMATS, RenderOptions
from analyzer.reports import Inspection
from tools.fuzz.reading import BrokenPromiseError, check_reading, check_refusal, parse, require_equal

__all__ = ["check_file"]


def check_file(path: Path, content: bytes, *, full: bool = False) -> str:
    """Audit the file at `path`, which holds `content`, and return the result: "counted", "refused", ...

    Raises:
        BrokenPromiseError: a promise does not hold; any exception that is not ours is a defect, too.
    """
    proto = parse(content)
    try:
        ledger = audit_model(path, content="full" if full else "sampled")
    except LedgerError as error:
        raise BrokenPromiseError(f"an identity does not hold: {error}") from error
    except OnnxLedgerError as error:
        check_refusal(error, path, proto)
        return "refused"
    check_report(ledger)
    if proto is None:
        return "counted what protobuf refuses"
    check_reading(ledger.model, proto)
    return "counted"


def check_report(ledger: Ledger) -> None:
    """Check both renderings, and the sums in them."""
    for by in KEYS:
        report = Inspection(ledger, group_by(ledger, by))
        document = json.loads(FORMATS["json"].render(report, RenderOptions()))
        roles = document["roles"].values()
        groups = document["groups"]
        require_equal("roles", sum(role["stored_elements"] for role in roles), ledger.stored_elements)
        require_equal("groups", sum(group["stored_elements"] for group in groups), ledger.stored_elements)
        require_equal("group parameters", sum(group["parameters"] for group in groups), ledger.parameters)
    require_equal(
        "accounts",
        sum(a["bytes"] for a in document["accounts"]),
        sum(f["bytes"] for f in document["model"]["files"]),
    )
    require_equal("keys", len({entry.tensor.key for entry in ledger.entries}), len(ledger.entries))
    paths = [graph.path for graph in ledger.model.graphs]
    require_equal("graph paths", len(set(paths)), len(paths))
    text = str(FORMATS["text"].render(report, RenderOptions(verbose=True)))
    unprintable = [c for c in text if not c.isprintable() and c != "\n"]
    if unprintable:
        raise BrokenPromiseError(f"prints {unprintable[0]!r}")
