"""PyTorch's program in a manifest, applied to files that a tool has rewritten or that were tampered with."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run_here
from exports import Exports
from onnx import numpy_helper

import analyzer

pytestmark = [
    pytest.mark.export,
    pytest.mark.skipif(not all(map(find_spec, ("torch", "transformers", "onnxscript"))), reason="exports"),
]


def run_reconcile(model: Path, *more: str) -> tuple[int, dict[str, Any]]:
    result = run_here("reconcile", model, "--content", "full", "--format", "json", *more)
    return result.returncode, json.loads(result.stdout)


@pytest.fixture
def rewritten(exported: Exports, tmp_path: Path) -> Callable[[Callable[[onnx.ModelProto], None]], Path]:
    """Return a function that copies an export, changes it and removes all names and notes, as optimizers do."""

    def make(
        change: Callable[[onnx.ModelProto], None] = lambda model: None,
        name: str = "bert",
        keeps_names: bool = False,
        **how: str,
    ) -> Path:
        folder = exported(name, **how).files.artifact.parent
        shutil.copytree(folder, tmp_path / "out")
        model = onnx.load(folder / "model.onnx")
        (tmp_path / "out" / "model.onnx.data").unlink(missing_ok=True)
        change(model)
        model.producer_name = "a tool"
        del model.graph.value_info[:]
        for number, node in enumerate(model.graph.node):
            node.name = f"n{number}"
            del node.metadata_props[:]
        names = {
            tensor.name: tensor.name if keeps_names else f"t{number}"
            for number, tensor in enumerate(model.graph.initializer)
        }
        for tensor in model.graph.initializer:
            tensor.name = names[tensor.name]
            del tensor.metadata_props[:]
        for node in model.graph.node:
            node.input[:] = [names.get(each, each) for each in node.input]
        onnx.save(model, tmp_path / "out" / "model.onnx")
        return tmp_path / "out" / "model.onnx"

    return make


def products(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the products with a square stored weight."""
    square = {t.name for t in model.graph.initializer if len(t.dims) == 2 and t.dims[0] == t.dims[1]}
    return [node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in square]


def exchange_layers(model: onnx.ModelProto) -> None:
    """Exchange the first square weights of the first and last layer."""
    found = products(model)
    one, two = found[0], found[len(found) // 2]
    one.input[1], two.input[1] = two.input[1], one.input[1]


def exchange_in_each(model: onnx.ModelProto) -> None:
    """Exchange query and key, which are alike, in every layer, so that layers do not differ."""
    found = products(model)
    each = len(found) // 2
    for start in (0, each):
        one, two = found[start : start + 2]
        one.input[1], two.input[1] = two.input[1], one.input[1]


def negate(model: onnx.ModelProto) -> None:
    """Negate a weight before its use."""
    node = products(model)[3]
    model.graph.node.insert(0, onnx.helper.make_node("Neg", [node.input[1]], ["turned"]))
    node.input[1] = "turned"


def move_gains(model: onnx.ModelProto) -> None:
    """Divide a norm's channels and multiply all weights after it, as SmoothQuant does."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    rng = np.random.default_rng(0)

    def multiply(name: str, factors: np.ndarray) -> None:
        array = numpy_helper.to_array(stored[name]) * factors
        stored[name].CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))

    norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    behind = readers[norm.output[0]]
    products = [each for node in behind for each in readers[node.output[0]] if node.op_type == "Reshape"]
    factors = rng.uniform(0.5, 2, stored[norm.input[1]].dims[0])
    for name in norm.input[1:]:
        multiply(name, 1 / factors)
    for product in products or behind:
        multiply(product.input[1], factors[:, None])


def test_gains_that_were_moved_are_no_other_program(rewritten: Callable[..., Path]) -> None:
    code, document = run_reconcile(rewritten(move_gains, "vit", keeps_names=True))

    assert {line["line"] for line in document["parameters"]} >= {"folded-pointwise"}
    assert (code, document["balanced"]) == (0, True)
    assert document["wiring"]["program"] != "differs"


def test_a_rewritten_file_is_proven_to_be_the_program(rewritten: Callable[..., Path]) -> None:
    model = rewritten()
    code, document = run_reconcile(model)

    assert (code, document["balanced"], document["wiring"]["program"]) == (0, True, "same")
    assert "computes the same as PyTorch's program" in " ".join(run_here("reconcile", model).stdout.split())


@pytest.mark.parametrize(
    ("change", "finding"),
    [(exchange_layers, "misplaced"), (exchange_in_each, "computes-otherwise"), (negate, "differing")],
)
def test_weights_in_other_places_do_not_balance(
    rewritten: Callable[..., Path], change: Callable[[onnx.ModelProto], None], finding: str
) -> None:
    model = rewritten(change)
    code, document = run_reconcile(model)

    errors = {each["id"] for each in document["findings"] if each["severity"] == "error"}
    assert (code, document["balanced"]) == (1, False)
    assert errors == ({finding, "misplaced"} if change is exchange_in_each else {finding})
    assert (document["wiring"]["program"] == "differs") == (change is exchange_in_each)
    assert not analyzer.reconcile(model).balanced


def exchange_positions(model: onnx.ModelProto) -> None:
    """Exchange the operands of the difference of positions."""
    stored = {tensor.name for tensor in model.graph.initializer}
    made = {node.output[0]: node.op_type for node in model.graph.node}
    node = next(
        node
        for node in model.graph.node
        if node.op_type == "Sub"
        and stored.isdisjoint(node.input)
        and {made.get(name) for name in node.input} <= {"Unsqueeze", "Reshape", "Cast"}
    )
    node.input[:] = node.input[::-1]


def test_positions_that_are_exchanged_before_a_table_do_not_balance(rewritten: Callable[..., Path]) -> None:
    code, document = run_reconcile(rewritten(exchange_positions, "t5"))

    assert (code, document["balanced"], document["wiring"]["program"]) == (1, False, "differs")
    misplaced = [line["name"] for line in document["parameters"] if line["line"] == "misplaced"]
    assert any("relative_attention_bias" in name for name in misplaced)


def exchange_mask(model: onnx.ModelProto) -> None:
    """Exchange masked and unmasked scores in the first layer."""
    makers = {name: node for node in model.graph.node for name in node.output}
    scores = next(makers[node.input[0]] for node in model.graph.node if node.op_type == "Softmax")
    mask = next(makers[name] for name in scores.input if makers[name].op_type == "Where")
    mask.input[1:] = mask.input[:0:-1]


def test_a_mask_that_is_turned_in_one_layer_does_not_balance(rewritten: Callable[..., Path]) -> None:
    code, document = run_reconcile(rewritten(exchange_mask, "bert", via="torchscript"))

    assert (code, document["balanced"], document["wiring"]["program"]) == (1, False, "differs")


def test_another_epsilon_is_reported_and_moves_no_weight(rewritten: Callable[..., Path]) -> None:
    def change(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
        next(each for each in node.attribute if each.name == "epsilon").f *= 1.1

    model = rewritten(change)
    code, document = run_reconcile(model)

    (found,) = (each for each in document["findings"] if each["id"] == "computes-otherwise")
    assert (code, document["balanced"], document["wiring"]["program"]) == (0, True, "differs")
    assert (found["severity"], "layer_norm (1e-12)" in found["message"]) == ("warning", True)
    answer = " ".join(run_here("reconcile", model).stdout.split())
    assert "parameters are in the file, but it computes something else" in answer
    assert run_here("reconcile", model, "--strict").returncode == 1


def test_what_has_no_known_program_is_not_reported_as_read_in_its_place(
    rewritten: Callable[..., Path], tmp_path: Path
) -> None:
    model = rewritten()
    manifest = tmp_path / "out" / "manifest.json"
    document = json.loads(manifest.read_text())
    for key in ("calls", "wiring"):
        document.pop(key, None)
    manifest.write_text(json.dumps(document))

    code, document = run_reconcile(model)

    assert (code, document["wiring"]["program"]) == (0, "not-known")
    assert document["wiring"]["checked"] < len(document["parameters"])
    text = " ".join(run_here("reconcile", model).stdout.split())
    assert re.search(r"\d+ not known; not a proof that it computes the same", text)


def test_code_that_only_a_manifest_names_is_not_run(
    exported: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "download"
    shutil.copytree(exported("factory").files.artifact.parent, folder)
    document = json.loads((folder / "manifest.json").read_text())
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef factory(): pass\n")
    monkeypatch.chdir(folder)
    for source, kind in (("evil:factory", "factory"), ("evil:factory", "config"), ("os:abort", "factory")):
        document["source"] |= {"source": source, "kind": kind}
        (folder / "manifest.json").write_text(json.dumps(document))
        for command in (("verify",), ("check", "--max-drift", "40dB")):
            result = run_here(command[0], "model.onnx", *command[1:])

            assert result.returncode == 2
            assert f"names {source}, and that Python code would run" in " ".join(
                (result.stdout + result.stderr).split()
            )
    assert not (tmp_path / "ran").exists()
