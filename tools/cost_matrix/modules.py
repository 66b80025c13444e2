"""Counts of PyTorch modules by several tools, compared with their exports: `python -m tools.cost_matrix.modules`.

Each architecture is built with random weights, counted by each tool on the example inputs of `export`, and exported
with these sizes. The reference is onnxruntime's run of the file, counted from the shapes in its profile.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.matrix.architectures import ARCHITECTURES
from tools.matrix.exports import CONFIG, config_text
from tools.suite.marks import write_between


@dataclass(frozen=True, slots=True)
class Row:
    """One module, and its multiply-accumulates by each counter."""

    architecture: str
    ran: int
    """Count of the exported file's run in onnxruntime."""
    predicted: int | None
    """Count by onnxledger without running the file; None if it reports the count as unknown."""
    peers: Mapping[str, int | str]
    """Count by each tool, or the tool's error."""


def main() -> None:
    """Count every architecture, print the table, and write it into a page."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.cost_matrix.modules", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", default="", help="part of an architecture's name")
    parser.add_argument("--markdown", type=Path, help="the page whose table is written")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = []
    for architecture in ARCHITECTURES:
        if options.only not in architecture:
            continue
        try:
            rows.append(count(architecture))
        except Exception as error:  # noqa: BLE001 - an architecture that torch.onnx does not export has no row
            sys.stdout.write(f"{architecture}: no file to compare with: {error}\n")
            continue
        sys.stdout.write(f"{rows[-1]}\n")
        sys.stdout.flush()
    text = "\n".join(render(rows)) + "\n"
    sys.stdout.write(text)
    if options.markdown:
        write_between(options.markdown, "modules", text)


def count(architecture: str) -> Row:
    """Return each counter's result for one architecture."""
    from analyzer.account.audit import audit_model
    from analyzer.cost.account import measure_cost
    from analyzer.cost.measured import measure_run
    from analyzer.cost.memory.answer import MemoryQuery
    from exporter import SourceOptions, example_inputs, export_source, resolve_source

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, CONFIG)
        config.write_text(config_text(architecture), encoding="utf-8")
        written = export_source(str(config), Path(folder, "out"), random_weights=True, static=True)
        ledger = audit_model(written.model, content="none")
        report = measure_cost(ledger)
        run = measure_run(ledger, report, MemoryQuery()).compared
        assert run.macs is not None, run.why
        resolved = resolve_source(str(config), SourceOptions(random_weights=True))
        made = example_inputs(resolved.model, resolved.config, resolved.example_inputs)
        module = resolved.model.eval()
        peers = {name: _count_or_error(counter, module, made) for name, counter in COUNTERS.items()}
        predicted = report.at(report.total.macs) if report.is_complete else None
        return Row(architecture, run.macs, predicted, peers)


def _count_or_error(counter: Callable[[Any, Any], int], module: Any, made: Any) -> int | str:
    import torch

    try:
        with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            return int(counter(module, made))
    except Exception as error:  # noqa: BLE001 - the table shows the error of a tool
        return f"{type(error).__name__}: {error}"[:100]


def _flop_counter(module: Any, made: Any) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(*made.args, **made.kwargs)
    return int(counter.get_total_flops()) // 2


def _fvcore(module: Any, made: Any) -> int:
    import torch
    from fvcore.nn import FlopCountAnalysis

    names = list(made.kwargs)

    class Positional(torch.nn.Module):
        """The module without keyword arguments."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any) -> Any:
            keywords = dict(zip(names, args[len(made.args) :], strict=True))
            result = self.module(*args[: len(made.args)], **keywords)
            values = result.values() if hasattr(result, "values") else [result]
            return tuple(value for value in values if isinstance(value, torch.Tensor))

    analysis = FlopCountAnalysis(Positional(), (*made.args, *made.kwargs.values()))
    analysis.unsupported_ops_warnings(enabled=False).uncalled_modules_warnings(enabled=False)
    return int(analysis.total())


def _torchinfo(module: Any, made: Any) -> int:
    from torchinfo import summary

    arguments = dict(made.kwargs) if made.kwargs else list(made.args)
    return int(summary(module, input_data=arguments, verbose=0).total_mult_adds)


COUNTERS: Mapping[str, Callable[[Any, Any], int]] = {
    "torch flop_counter": _flop_counter,
    "fvcore": _fvcore,
    "torchinfo": _torchinfo,
}


def render(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the tables: each counter's right, low, high and missing counts; then the modules."""
    yield f"{len(rows)} modules with random weights, on the example inputs of `export`:"
    yield ""
    yield "| Counter | Exact | Too low | Too high | None, named or failed |"
    yield "|---|---:|---:|---:|---:|"
    counts_by_name: dict[str, list[int | str | None]] = {
        "onnxledger, of the file": [row.predicted for row in rows]
    }
    counts_by_name |= {name: [row.peers[name] for row in rows] for name in COUNTERS}
    for name, counts in counts_by_name.items():
        pairs = [(found, row.ran) for found, row in zip(counts, rows, strict=True)]
        known = [(found, ran) for found, ran in pairs if isinstance(found, int)]
        cells = (
            sum(found == ran for found, ran in known),
            sum(found < ran for found, ran in known),
            sum(found > ran for found, ran in known),
            len(pairs) - len(known),
        )
        yield f"| {name} | " + " | ".join(map(str, cells)) + " |"
    yield ""
    yield "| Module | onnxruntime runs | " + " | ".join(counts_by_name) + " |"
    yield "|---|---:|" + "---:|" * len(counts_by_name)
    for index, row in enumerate(rows):
        cells_text = " | ".join(_cell(counts[index]) for counts in counts_by_name.values())
        yield f"| {row.architecture} | {row.ran:,} | {cells_text} |"


def _cell(found: int | str | None) -> str:
    if isinstance(found, int):
        return f"{found:,}"
    return "not known" if found is None else found.partition(":")[0]


if __name__ == "__main__":
    main()
