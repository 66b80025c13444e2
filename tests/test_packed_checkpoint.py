"""Checkpoints of GPTQ and AWQ beside the MatMulNBits files made from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from commands import run_here
from models import save, text_model
from safetensors.numpy import save_file

from analyzer.checkpoints.checkpoint import open_checkpoint
from analyzer.model.content import Array

OUT, IN, GROUP = 32, 64, 16
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)

GRAPH = f"""g (float[b, {IN}] x) => (float[b, {OUT}] y) {{
  y = com.microsoft.MatMulNBits <K = {IN}, N = {OUT}, bits = 4, block_size = {GROUP}> (x, w, s, z)
}}"""


def drawn(seed: int = 0, *, symmetric: bool = False) -> tuple[Array, Array, Array]:
    """Return codes (in, out), and zero points and scales (groups, out)."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 16, (IN, OUT), dtype=np.uint8)
    zeros = random.integers(1, 16, (IN // GROUP, OUT), dtype=np.uint8)
    scales = random.uniform(0.01, 0.05, (IN // GROUP, OUT)).astype(np.float16)
    return codes, np.full_like(zeros, 8) if symmetric else zeros, scales


def weight_of(codes: Array, zeros: Array, scales: Array, group: Array | None = None) -> Array:
    """Return the weight (out, in) of `nn.Linear`, computed element by element."""
    group = np.arange(IN) // GROUP if group is None else group
    made = np.empty((OUT, IN), np.float32)
    for row in range(IN):
        for column in range(OUT):
            step = np.float32(scales[group[row], column])
            made[column, row] = (int(codes[row, column]) - int(zeros[group[row], column])) * step
    return made


def words_along_rows(codes: Array) -> Array:
    """Return GPTQ's `qweight`: eight codes of a column in a word, the first in its lowest bits."""
    made = np.zeros((codes.shape[0] // 8, codes.shape[1]), np.uint32)
    for row in range(codes.shape[0]):
        made[row // 8] |= codes[row].astype(np.uint32) << np.uint32(4 * (row % 8))
    return made.view(np.int32)


def words_along_columns(codes: Array, order: tuple[int, ...] = tuple(range(8))) -> Array:
    """Pack eight codes of a row in a word; `order` gives the column of each, from the lowest bits up."""
    made = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for word in range(made.shape[1]):
        for place, column in enumerate(order):
            made[:, word] |= codes[:, 8 * word + column].astype(np.uint32) << np.uint32(4 * place)
    return made.view(np.int32)


def packed(
    method: Literal["gptq", "gptq_v2", "awq"],
    codes: Array,
    zeros: Array,
    scales: Array,
    group: Array | None = None,
) -> dict[str, Array]:
    """Return the tensors of a layer `fc`, as AutoGPTQ, GPTQModel and AutoAWQ write them."""
    if method == "awq":
        parts = {
            "qweight": words_along_columns(codes, AWQ_ORDER),
            "qzeros": words_along_columns(zeros, AWQ_ORDER),
        }
    else:
        kept = zeros if method == "gptq_v2" else (zeros - 1) & 15
        parts = {"qweight": words_along_rows(codes), "qzeros": words_along_columns(kept)}
        parts["g_idx"] = (np.arange(IN) // GROUP if group is None else group).astype(np.int32)
    return {f"fc.{leaf}": part for leaf, part in {**parts, "scales": scales}.items()}


def checkpoint(folder: Path, method: str, tensors: dict[str, Array]) -> Path:
    folder.mkdir(exist_ok=True)
    config: dict[str, Any] = {"quant_method": method.partition("_")[0], "bits": 4, "group_size": GROUP}
    config |= {"checkpoint_format": method} if method != "awq" else {}
    (folder / "quantize_config.json").write_text(json.dumps(config))
    save_file(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, folder / "model.safetensors"
    )
    return folder / "model.safetensors"


def exported(folder: Path, codes: Array, zeros: Array, scales: Array) -> Path:
    """Save the layer as onnxruntime's model builder writes it: two codes of a row in a byte, scales in FLOAT."""
    blocks = codes.T.reshape(OUT, IN // GROUP, GROUP)
    points = zeros.T  # (out, groups)
    stored = {
        "w": blocks[..., 0::2] | (blocks[..., 1::2] << 4),
        "s": scales.T.astype(np.float32).reshape(-1),
        "z": (points[:, 0::2] | (points[:, 1::2] << 4)).reshape(-1),
    }
    return save(
        folder, text_model(GRAPH, {name: np.ascontiguousarray(array) for name, array in stored.items()})
    )


def reconciled(model: Path, against: Path) -> dict[str, Any]:
    done = run_here("reconcile", model, "--against", against, "--content", "full", "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["balanced"] is (done.returncode == 0)
    return document


@pytest.mark.parametrize("method", ["gptq", "gptq_v2", "awq"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_the_weight_is_what_its_codes_stand_for(tmp_path: Path, method: Any, symmetric: bool) -> None:
    parts = drawn(symmetric=symmetric)
    original = open_checkpoint(checkpoint(tmp_path / "c", method, packed(method, *parts)))

    (weight,) = original.manifest.parameters
    assert (weight.name, weight.shape) == ("fc.weight", (OUT, IN))
    assert original.weights is not None
    assert np.array_equal(original.weights.array("fc.weight"), weight_of(*parts))  # type: ignore[arg-type]
    assert not original.manifest.buffers
    assert "decoded from" in original.notes[0]


def test_each_input_may_be_in_any_group(tmp_path: Path) -> None:
    """`desc_act` orders the inputs by importance."""
    parts, group = drawn(), np.random.default_rng(3).permutation(np.arange(IN) // GROUP)
    original = open_checkpoint(checkpoint(tmp_path / "c", "gptq", packed("gptq", *parts, group=group)))

    assert original.weights is not None
    assert np.array_equal(original.weights.array("fc.weight"), weight_of(*parts, group=group))  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["gptq", "gptq_v2", "awq"])
def test_the_file_balances_with_the_checkpoint_that_it_is_made_of(tmp_path: Path, method: Any) -> None:
    parts = drawn()

    document = reconciled(
        exported(tmp_path, *parts), checkpoint(tmp_path / "c", method, packed(method, *parts))
    )

    assert document["balanced"]
    assert [(line["name"], line["elements"]) for line in document["parameters"]] == [("fc.weight", OUT * IN)]


@pytest.mark.parametrize("method", ["gptq", "awq"])
@pytest.mark.parametrize("part", ["a code", "codes", "a zero point", "a scale", "another draw"])
def test_a_file_of_other_codes_does_not(tmp_path: Path, method: Any, part: str) -> None:
    codes, zeros, scales = drawn()
    against = checkpoint(tmp_path / "c", method, packed(method, codes, zeros, scales))
    other = [codes.copy(), zeros.copy(), scales.copy()]
    if part == "a code":
        other[0][5, 7] ^= 8
    elif part == "codes":
        other[0] = other[0][::-1].copy()
    elif part == "a zero point":
        other[1][1, 3] = (other[1][1, 3] + 5) % 16
    elif part == "a scale":
        other[2][2, 9] *= np.float16(1.25)
    else:
        other = list(drawn(seed=1))

    assert not reconciled(exported(tmp_path, *other), against)["balanced"]


@pytest.mark.parametrize("lacking", ["fc.qzeros", "fc.scales"])
def test_what_cannot_be_decoded_stays_as_it_is_stored(tmp_path: Path, lacking: str) -> None:
    tensors = packed("gptq", *drawn())
    del tensors[lacking]

    original = open_checkpoint(checkpoint(tmp_path / "c", "gptq", tensors))

    names = {each.name for each in (*original.manifest.parameters, *original.manifest.buffers)}
    assert "fc.weight" not in names
    assert "fc.qweight" in names


def test_invalid_group_indices_give_no_weight(tmp_path: Path) -> None:
    group = np.full(IN, 99)
    original = open_checkpoint(checkpoint(tmp_path / "c", "gptq", packed("gptq", *drawn(), group=group)))

    assert original.weights is not None
    assert original.weights.array("fc.weight") is None


@pytest.mark.export
@pytest.mark.parametrize("path_in_folder", ["model.safetensors", ""], ids=["the file", "the folder"])
def test_with_a_config_the_class_says_which_are_parameters(tmp_path: Path, path_in_folder: str) -> None:
    from exports import CONFIGS

    from exporter import SourceOptions, census_source, resolve_source

    folder = tmp_path / "llama"
    folder.mkdir()
    quantized = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "checkpoint_format": "gptq"}
    (folder / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    model = resolve_source(str(folder / "config.json"), SourceOptions(random_weights=True)).model
    state = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    name = "model.layers.0.mlp.gate_proj.weight"
    out, width = state[name].shape
    random = np.random.default_rng(5)
    codes = random.integers(0, 16, (width, out), dtype=np.uint8)
    zeros = np.full((width // GROUP, out), 8, np.uint8)
    scales = random.uniform(0.01, 0.05, zeros.shape).astype(np.float16)
    stem = name.removesuffix("weight")
    state |= {f"{stem}qweight": words_along_rows(codes), f"{stem}qzeros": words_along_columns(zeros - 1)}
    state |= {f"{stem}scales": scales}
    del state[name]
    save_file(
        {key: np.ascontiguousarray(value) for key, value in state.items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps({**CONFIGS["llama"], "quantization_config": quantized}))

    original = census_source(str(folder / path_in_folder))

    assert name in {parameter.name for parameter in original.manifest.parameters}
    assert original.manifest.source["class"] == "LlamaForCausalLM"
    assert original.weights is not None
    found = original.weights.array(name)
    wanted = (codes.astype(np.float32) - 8) * np.repeat(scales.astype(np.float32), GROUP, axis=0)
    assert found is not None
    assert np.array_equal(found, wanted.T)
