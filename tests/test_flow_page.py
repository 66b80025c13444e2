"""Paths through the code in docs/extending.md: the named steps are the actual calls, in that order."""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from models import dynamo_like, ramp, save, text_model

from analyzer.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")


def steps(number: int) -> list[str]:
    """Return the functions that a section of the page names, in its order."""
    return re.findall(
        r"^\| `([\w.]+)` \|", PAGE.split("\n### One ")[number].partition("\n## ")[0], re.MULTILINE
    )


def code_of(step: str) -> CodeType:
    function = pkgutil.resolve_name(step)
    return inspect.unwrap(function).__code__


def follow(wanted: list[str], run: Callable[[], object]) -> list[str]:
    """Return the functions that are called, in the order of their first calls."""
    known = {code_of(step): step for step in wanted}
    called: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in known:
            called.setdefault(known[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(called)


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Callable[[], None]:
    def run() -> None:
        monkeypatch.setattr(sys, "argv", ["onnxledger", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code

    return run


def test_a_tensor_goes_the_way_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": ramp(3, 2)})
    model = save(tmp_path, dynamo_like(proto, folded={"w": ["fc.weight"]}))
    wanted = steps(1)

    assert (
        follow(wanted, command(monkeypatch, "inspect", model, "-o", tmp_path / "r.html", "--quiet")) == wanted
    )


@pytest.mark.export
def test_a_parameter_goes_the_way_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "import torch\ndef factory():\n    return torch.nn.Linear(3, 2), (torch.randn(1, 3),)\n"
    )
    monkeypatch.chdir(tmp_path)
    census, account = steps(2)[:3], steps(2)[3:]
    export = command(monkeypatch, "export", "net:factory", "-o", tmp_path / "out", "--quiet")
    reconcile = command(monkeypatch, "reconcile", tmp_path / "out" / "model.onnx", "--quiet")

    assert follow(census, export) == census
    assert follow(account, reconcile) == account
