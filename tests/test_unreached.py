"""Modules that an export's example inputs do not reach: found, saved and reported, without false reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from analyzer.cli import command  # noqa: E402
from analyzer.errors import ManifestError  # noqa: E402
from analyzer.manifest import Unreached, load_manifest  # noqa: E402
from exporter import ExampleInputs  # noqa: E402
from exporter.census import take_census, with_reads  # noqa: E402
from exporter.reads import find_unreached, reads_of_calls  # noqa: E402

nn, Tensor = torch.nn, torch.Tensor


class Tower(nn.Module):
    main_input_name = "pixel_values"

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(6, 4)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.map(pixel_values)


class Talker(nn.Module):
    """A text model with optional image inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.vision_tower = Tower()
        self.projector = nn.Linear(4, 4)
        self.table = nn.Embedding(9, 4)
        self.pooler = nn.Linear(1, 1, bias=False)
        self.head = nn.Linear(4, 9)

    def forward(
        self, input_ids: Tensor, pixel_values: Tensor | None = None, labels: Tensor | None = None
    ) -> Tensor:
        value = self.table(input_ids)
        if pixel_values is not None:
            value = value + self.projector(self.vision_tower(pixel_values))[:, None]
        return self.head(value)


def talker() -> tuple[nn.Module, tuple[Tensor]]:
    torch.manual_seed(0)
    return Talker(), (torch.tensor([[1, 2], [3, 4]]),)


def unreached_of(model: nn.Module, **kwargs: Tensor) -> tuple[Unreached, ...]:
    model.eval()
    manifest = with_reads(take_census(model), reads_of_calls(model, (), kwargs))
    return find_unreached(model, manifest, ExampleInputs(kwargs=kwargs))


def test_what_leads_to_a_tower_and_to_what_is_behind_it_is_reported():
    model, (ids,) = talker()

    assert unreached_of(model, input_ids=ids) == (
        Unreached("vision_tower", 28, ("pixel_values",)),
        Unreached("projector", 20, ("pixel_values",)),
    )


def test_small_modules_that_no_known_input_reaches_are_not_reported():
    model, (ids,) = talker()

    assert unreached_of(model, input_ids=ids, pixel_values=torch.randn(2, 6)) == ()


def test_a_large_one_is_reported_without_an_input():
    model, (ids,) = talker()
    model.auxiliary = nn.Linear(4, 9)

    found = unreached_of(model, input_ids=ids, pixel_values=torch.randn(2, 6))

    assert found == (Unreached("auxiliary", 45, ()),)


def test_without_a_trace_nothing_is_known():
    model, (ids,) = talker()

    assert find_unreached(model, take_census(model), ExampleInputs(kwargs={"input_ids": ids})) == ()


@pytest.mark.export
@pytest.mark.parametrize("via", ["dynamo", "torchscript"])
def test_an_export_warns_and_so_does_every_reconciliation_with_its_manifest(tmp_path: Path, via: str):
    runner = CliRunner()

    made = runner.invoke(command, ["export", "test_unreached:talker", "-o", str(tmp_path), "--via", via])
    again = runner.invoke(command, ["reconcile", str(tmp_path / "model.onnx"), "--strict"])

    assert made.exit_code == 0, made.output
    words = " ".join(made.stdout.split())
    assert "48 parameters" in words
    assert "WARN 48 parameters (36.9231 %) are not in the file" in words
    assert "[unreached-module]" in words
    assert again.exit_code == 1
    whole = " ".join(runner.invoke(command, ["reconcile", str(tmp_path / "model.onnx"), "-v"]).stdout.split())
    assert "no example input reaches projector, vision_tower; pixel_values would" in whole
    document = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert document["unreached"][0] == {"module": "vision_tower", "elements": 28, "inputs": ["pixel_values"]}


@pytest.mark.export
def test_a_manifest_that_names_an_unreached_module_of_nothing_is_refused(tmp_path: Path):
    CliRunner().invoke(
        command, ["export", "test_unreached:talker", "-o", str(tmp_path), "--via", "torchscript"]
    )
    path = tmp_path / "manifest.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["unreached"][0]["module"] = "elsewhere"
    path.write_text(json.dumps(document), encoding="utf-8")

    with pytest.raises(ManifestError, match="elsewhere"):
        load_manifest(path)
