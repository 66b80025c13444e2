"""Safetensors files and their indexes as PyTorch's side, without torch: their contents, and refusals."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from commands import run_here
from models import ramp, save, text_model
from safetensors.numpy import save_file

from analyzer.checkpoints import Original
from analyzer.checkpoints.checkpoint import CheckpointKind, checkpoint_files, checkpoint_kind, open_checkpoint
from analyzer.checkpoints.statedict import NamedTensor, describe_by_names, is_buffer, plain_names
from analyzer.errors import ManifestError
from analyzer.model.content import Array
from analyzer.model.dtypes import DType

Header = dict[str, Any]


def checkpoint(path: Path, tensors: Mapping[str, Array], **metadata: str) -> Path:
    save_file(dict(tensors), path, metadata=metadata or None)
    return path


def written(path: Path, header: Header | bytes, data: bytes = b"", length: int | None = None) -> Path:
    """Write a safetensors file with the header's length, or with the false `length`."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def item(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def index(folder: Path, shards: Mapping[str, str], name: str = "model.safetensors.index.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": dict(shards)}))
    return path


def names(original: Original) -> tuple[list[str], list[str]]:
    manifest = original.manifest
    return [p.name for p in manifest.parameters], [b.name for b in manifest.buffers]


# contents


def test_a_file_is_described_with_the_values_that_it_holds(tmp_path: Path) -> None:
    tensors = {
        "fc.weight": ramp(300, 200),
        "fc.bias": ramp(300),
        "scale": np.array(2.5, np.float64),
        "nothing": np.empty((0, 3), np.float32),
    }

    original = open_checkpoint(checkpoint(tmp_path / "model.safetensors", tensors))

    assert {p.name: (p.shape, p.dtype) for p in original.manifest.parameters} == {
        "fc.bias": ((300,), DType.FLOAT),
        "fc.weight": ((300, 200), DType.FLOAT),
        "nothing": ((0, 3), DType.FLOAT),
        "scale": ((), DType.DOUBLE),
    }
    for name, array in tensors.items():
        assert np.array_equal(original.weights.array(name), array)
    assert original.weights.array("absent") is None
    assert original.manifest.source["parameters_by"] == "names"


def test_values_are_views_of_the_file_that_cannot_be_written_to(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "model.safetensors", {"big": ramp(200, 200), "small": ramp(2)})

    weights = open_checkpoint(path).weights

    base = weights.array("big")
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base.base, memoryview)
    assert isinstance(base.base.obj, mmap.mmap)
    assert not any(weights.array(name).flags.writeable for name in ("big", "small"))


@pytest.mark.parametrize(
    ("written_as", "element", "expected"),
    [
        ("BF16", ml_dtypes.bfloat16, DType.BFLOAT16),
        ("F8_E4M3", ml_dtypes.float8_e4m3fn, DType.FLOAT8E4M3FN),
        ("F8_E5M2", ml_dtypes.float8_e5m2, DType.FLOAT8E5M2),
        ("F16", np.float16, DType.FLOAT16),
        ("F32", np.float32, DType.FLOAT),
        ("I64", np.int64, DType.INT64),
        ("U16", np.uint16, DType.UINT16),
        ("BOOL", np.bool_, DType.BOOL),
        ("C64", np.complex64, DType.COMPLEX64),
    ],
)
def test_values_have_the_files_own_type(
    tmp_path: Path, written_as: str, element: Any, expected: DType
) -> None:
    array = np.arange(6).reshape(2, 3).astype(element)
    header = {"x.weight": item(written_as, [2, 3], 0, array.nbytes)}

    original = open_checkpoint(written(tmp_path / "m.safetensors", header, array.tobytes()))

    (tensor,) = original.manifest.tensors
    values = original.weights.array("x.weight")
    assert tensor.dtype is expected
    assert values.dtype == expected.to_numpy()
    assert values.tobytes() == array.tobytes()


def test_packed_types_are_counted_and_have_no_values(tmp_path: Path) -> None:
    header = {"packed": item("F4", [8], 0, 4)}

    original = open_checkpoint(written(tmp_path / "m.safetensors", header, bytes(4)))

    assert original.manifest.parameters[0].numel == 8
    assert original.weights.array("packed") is None


def test_tensors_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    tensors = {f"layer.{number}.weight": ramp(2, start=number) for number in (10, 9, 2, 11)}

    parameters, _ = names(open_checkpoint(checkpoint(tmp_path / "m.safetensors", tensors)))

    assert parameters == [f"layer.{number}.weight" for number in (2, 9, 10, 11)]


def test_names_that_save_model_left_out_are_ties(tmp_path: Path) -> None:
    path = checkpoint(
        tmp_path / "m.safetensors", {"wte.weight": ramp(2, 3)}, format="pt", **{"head.weight": "wte.weight"}
    )

    original = open_checkpoint(path)

    assert original.manifest.parameters[0].names == ("wte.weight", "head.weight")
    assert np.array_equal(original.weights.array("head.weight"), ramp(2, 3))


def test_a_file_without_tensors_is_an_empty_side(tmp_path: Path) -> None:
    assert open_checkpoint(written(tmp_path / "m.safetensors", {})).manifest.tensors == ()


def test_a_file_that_changes_is_reported_as_changed(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m.safetensors", {"big": ramp(200, 200)})
    weights = open_checkpoint(path).weights
    checkpoint(path, {"big": ramp(300, 200)})

    with pytest.raises(ManifestError, match="changed while it was read"):
        weights.array("big")


# names


@pytest.mark.parametrize(
    ("stored", "plain"),
    [
        (["module.a.w", "module.b"], ["a.w", "b"]),
        (["module.a.w", "b"], ["module.a.w", "b"]),
        (["_orig_mod.a.w", "_orig_mod.b"], ["a.w", "b"]),
        (["module._orig_mod.layers._checkpoint_wrapped_module.0.w"], ["layers.0.w"]),
        (["bert.LayerNorm.gamma", "LayerNorm.beta"], ["bert.LayerNorm.weight", "LayerNorm.bias"]),
        (["MyLayerNorm.gamma", "layer.gamma"], ["MyLayerNorm.gamma", "layer.gamma"]),
        (["LayerNorm.gamma", "LayerNorm.weight"], ["LayerNorm.gamma", "LayerNorm.weight"]),
        (["_orig_mod", "module."], ["_orig_mod", "module."]),
        ([], []),
    ],
)
def test_wrappers_and_old_spellings_are_taken_off_names(stored: list[str], plain: list[str]) -> None:
    assert list(plain_names(stored).values()) == plain


def test_values_are_found_by_the_stored_name_too(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m.safetensors", {"module.LayerNorm.gamma": ramp(3)})

    original = open_checkpoint(path)

    assert names(original) == (["LayerNorm.weight"], [])
    assert np.array_equal(original.weights.array("LayerNorm.weight"), ramp(3))
    assert np.array_equal(original.weights.array("module.LayerNorm.gamma"), ramp(3))


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "answer"),
    [
        ("bn.running_mean", DType.FLOAT, (3,), True),
        ("bn.num_batches_tracked", DType.INT64, (), True),
        ("embeddings.position_ids", DType.INT64, (1, 512), True),
        ("rotary.inv_freq", DType.FLOAT, (8,), True),
        ("final_logits_bias", DType.FLOAT, (1, 99), True),
        ("h.0.attn.masked_bias", DType.FLOAT, (), True),
        ("h.0.attn.bias", DType.FLOAT, (1, 1, 8, 8), True),
        ("h.0.attn.bias", DType.BOOL, (1, 1, 8, 8), True),
        ("h.0.attn.bias", DType.FLOAT, (8,), False),
        ("mask.bias", DType.FLOAT, (1, 2, 8, 8), False),
        ("quantizer.layers.0.codebook.embed", DType.FLOAT, (4, 2), True),
        ("patch.embed", DType.FLOAT, (4, 2), False),
        ("encoder.embed_positions.weights", DType.FLOAT, (4, 2), True),
        ("encoder.embed_positions.weight", DType.FLOAT, (4, 2), False),
        ("gate.token_ordering", DType.INT64, (4,), True),
        ("fc.weight", DType.INT8, (4, 4), False),
        ("fc.weight", DType.FLOAT, (4, 4), False),
        ("fc.bias", DType.FLOAT, (4,), False),
        ("cls_token", DType.FLOAT, (1, 1, 4), False),
        ("logit_scale", DType.FLOAT, (), False),
        ("odd", DType.UNDEFINED, (3,), False),
    ],
)
def test_buffers_are_recognized_by_names_types_and_shapes(
    name: str, dtype: DType, shape: tuple[int, ...], answer: bool
) -> None:
    assert is_buffer(NamedTensor(name, dtype, shape)) is answer


@pytest.mark.parametrize(
    ("mask", "is_mask"),
    [
        (np.tril(np.ones((1, 1, 6, 6), np.float32)), True),
        (np.ones((1, 1, 6, 6), np.float32), False),
        (ramp(1, 1, 6, 6), False),
    ],
)
def test_a_causal_mask_is_distinguished_from_a_learned_bias_by_its_values(
    tmp_path: Path, mask: Array, is_mask: bool
) -> None:
    path = checkpoint(tmp_path / "m.safetensors", {"h.0.attn.bias": mask, "h.0.attn.c_attn.bias": ramp(4)})

    parameters, buffers = names(open_checkpoint(path))

    assert ("h.0.attn.bias" in buffers) is is_mask
    assert "h.0.attn.c_attn.bias" in parameters


def test_batch_norms_are_found_by_their_statistics_and_their_guessed_eps_is_reported(tmp_path: Path) -> None:
    leaves = ("weight", "bias", "running_mean", "running_var")
    tensors: dict[str, Array] = {f"bn.{leaf}": ramp(3, start=i) for i, leaf in enumerate(leaves)}
    tensors["bn.num_batches_tracked"] = np.array(7)

    original = open_checkpoint(checkpoint(tmp_path / "m.safetensors", tensors))

    (norm,) = original.manifest.batch_norms
    assert (norm.module, norm.weight, norm.running_var) == ("bn", "bn.weight", "bn.running_var")
    assert names(original)[0] == ["bn.bias", "bn.weight"]
    assert any("eps of 1 BatchNorms" in note and "1e-05" in note for note in original.notes)


@pytest.mark.parametrize(
    ("length", "direction", "shape", "axis"),
    [
        ("conv.weight_g", "conv.weight_v", (4, 1, 1), 0),
        ("conv.parametrizations.weight.original0", "conv.parametrizations.weight.original1", (4, 1, 1), 0),
        ("conv.weight_g", "conv.weight_v", (1, 1, 5), 2),
    ],
)
def test_weight_norms_are_found_by_their_names(
    tmp_path: Path, length: str, direction: str, shape: tuple[int, ...], axis: int
) -> None:
    path = checkpoint(tmp_path / "m.safetensors", {length: ramp(*shape), direction: ramp(4, 3, 5)})

    (norm,) = open_checkpoint(path).manifest.weight_norms

    assert (norm.weight, norm.length, norm.direction, norm.axis) == ("conv.weight", length, direction, axis)


def test_a_pair_of_other_shapes_is_no_weight_norm(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m.safetensors", {"a.weight_g": ramp(2, 3), "a.weight_v": ramp(2, 3)})

    assert open_checkpoint(path).manifest.weight_norms == ()


def test_a_name_of_400_000_letters_is_read_in_no_time() -> None:
    """A pattern that tries each of n starts and scans to the end would take minutes."""
    name = "a" * 400_000

    assert not is_buffer(NamedTensor(name, DType.FLOAT, (2, 2)))
    assert describe_by_names([NamedTensor(name, DType.FLOAT, (1,))], {}, None).manifest.weight_norms == ()


def test_signalling_nans_are_read_without_warnings(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    signalling = np.full(16, 0x7F800001, "<u4").view("<f4")
    signalling[3:] = np.linspace(0.1, 0.9, 13, dtype=np.float32)
    arrays = {"mix": signalling.reshape(4, 4), "conv.weight_u": signalling}
    path = checkpoint(tmp_path / "m.safetensors", arrays)
    text = "g (float[4, 4] x) => (float[4, 4] y) { y = MatMul(x, w) }"
    model = save(tmp_path, text_model(text, {"w": ramp(4, 4)}))

    done = run_here("reconcile", model, "--against", path)

    assert len(open_checkpoint(path).manifest.parameters) == 2
    assert done.returncode == 1
    assert "RuntimeWarning" not in done.stderr
    assert [*recwarn] == []


# refusals


@pytest.mark.parametrize("shape", [[1] * 100, [0] * 3000], ids=["100 axes", "3,000 axes"])
def test_a_shape_that_no_array_has_is_refused(tmp_path: Path, shape: list[int]) -> None:
    path = written(
        tmp_path / "m.safetensors", {"a": item("F32", shape, 0, 4 * shape[0])}, b"\0" * 4 * shape[0]
    )

    with pytest.raises(ManifestError, match="a is of a shape that no array has"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("header", "data", "sentence"),
    [
        ({"a": item("F32", [2], 0, 8)}, 4, "file not fully covered"),
        ({"a": item("F32", [2], 0, 8)}, 40, "file not fully covered"),
        ({"a": item("F32", [2], 0, 8), "b": item("F32", [2], 4, 12)}, 12, "invalid offset for tensor `b`"),
        ({"a": item("F32", [2], 0, 8), "b": item("F32", [1], 12, 16)}, 16, "invalid offset for tensor `b`"),
        ({"a": item("F32", [3], 0, 8)}, 8, "invalid shape"),
        ({"a": item("F32", [-2], 0, 8)}, 8, "integer `-2`"),
        ({"a": item("F32", [1 << 62, 1 << 62], 0, 8)}, 8, "overflow"),
        ({"a": item("F99", [2], 0, 8)}, 8, "F99"),
        ({"a": {"dtype": "F32"}}, 0, "missing field"),
        ({"a": 3}, 0, "invalid type"),
        (b"{" + b"x" * 9, 0, "invalid JSON"),
        (b"{" * 5000, 0, "invalid JSON"),
    ],
)
def test_a_header_that_is_not_sound_is_refused_with_file_and_place(
    tmp_path: Path, header: Header | bytes, data: int, sentence: str
) -> None:
    path = written(tmp_path / "m.safetensors", header, bytes(data))

    with pytest.raises(
        ManifestError, match=rf"m\.safetensors: .*bytes 8 to .*{sentence}.*; download or save"
    ) as error:
        open_checkpoint(path)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "no header begins at byte 8"),
        (b"\x08\0\0", "no header begins at byte 8"),
        (b"<html><body>404</body></html>", "no header begins at byte 8"),
        ((1000).to_bytes(8, "little") + b'{"a":', "should end at byte 1,008, the file ends at byte 13"),
        ((1 << 60).to_bytes(8, "little") + b'{"a":', "should end at byte 1,152,921,504,606,846,984"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", "git lfs pull"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_with_the_place(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)

    with pytest.raises(ManifestError, match=sentence):
        open_checkpoint(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")

    for path in (tmp_path / "absent.safetensors", tmp_path, tmp_path / "pipe.safetensors"):
        with pytest.raises(ManifestError, match=path.name):
            open_checkpoint(path)


# shards


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Write an index of two files."""
    checkpoint(tmp_path / "one.safetensors", {"a.weight": ramp(2, 3), "a.bias": ramp(3)})
    checkpoint(tmp_path / "two.safetensors", {"b.weight": ramp(300, 200)})
    file_of = {"a.weight": "one.safetensors", "a.bias": "one.safetensors", "b.weight": "two.safetensors"}
    return index(tmp_path, file_of)


def test_an_index_is_all_of_its_shards(shards: Path) -> None:
    original = open_checkpoint(shards)

    assert names(original) == (["a.bias", "a.weight", "b.weight"], [])
    assert np.array_equal(original.weights.array("b.weight"), ramp(300, 200))
    assert [path.name for path in checkpoint_files(shards)] == ["one.safetensors", "two.safetensors"]


def test_what_the_index_does_not_name_is_kept_and_reported(shards: Path) -> None:
    index(shards.parent, {"a.weight": "one.safetensors", "b.weight": "two.safetensors"})

    original = open_checkpoint(shards)

    assert "a.bias" in names(original)[0]
    assert any("does not name: a.bias" in note for note in original.notes)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"c.weight": "one.safetensors"}, "says that c.weight is in one.safetensors, which does not hold it"),
        ({"c.weight": "three.safetensors"}, "shard 'three.safetensors' is not there"),
        ({"c.weight": "../one.safetensors"}, "no plain file name"),
        ({"c.weight": "/etc/passwd"}, "no plain file name"),
        ({"c.weight": "sub/one.safetensors"}, "no plain file name"),
        ({"c.weight": "sub\\one.safetensors"}, "no plain file name"),
        ({"c.weight": ".."}, "leads outside the folder of the index"),
        ({"c.weight": ""}, "is not a relative path"),
        ({"c.weight": 3}, "no plain file name"),
        ({"c.weight": "link.safetensors"}, "leads outside the folder of the index"),
        ({"c.weight": "broken.safetensors"}, "no header begins at byte 8"),
        ({"c.weight": "model.safetensors.index.json"}, "is the index itself"),
    ],
)
def test_an_index_that_its_shards_contradict_is_refused(
    shards: Path, change: dict[str, Any], sentence: str
) -> None:
    folder = shards.parent
    (folder / "sub").mkdir()
    (folder / "broken.safetensors").write_bytes(b"nothing")
    outside = folder.parent / f"{folder.name}-outside.safetensors"
    checkpoint(outside, {"c.weight": ramp(2)})
    (folder / "link.safetensors").symlink_to(outside)
    document = json.loads(shards.read_text())
    document["weight_map"].update(change)
    shards.write_text(json.dumps(document))

    with pytest.raises(ManifestError, match=sentence):
        open_checkpoint(shards)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": []}', "[" * 100_000])
def test_an_invalid_index_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(text)

    with pytest.raises(ManifestError, match=r"model\.safetensors\.index\.json: (not JSON|no index)"):
        open_checkpoint(path)


def test_shards_of_a_hub_cache_are_links_into_its_blobs(shards: Path, tmp_path: Path) -> None:
    store = tmp_path / "models--a--b"
    (store / "blobs").mkdir(parents=True)
    snapshot = store / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for number, path in enumerate((shards, *checkpoint_files(shards))):
        path.rename(store / "blobs" / str(number))
        (snapshot / path.name).symlink_to(store / "blobs" / str(number))

    assert names(open_checkpoint(snapshot / shards.name))[0] == ["a.bias", "a.weight", "b.weight"]


# kinds of files


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("model.safetensors", b"", CheckpointKind.SAFETENSORS),
        ("no-suffix", (2).to_bytes(8, "little") + b"{}", CheckpointKind.SAFETENSORS),
        ("weights.bin", b"anything", CheckpointKind.PICKLE),
        ("no-suffix", b"PK\x03\x04...", CheckpointKind.PICKLE),
        ("no-suffix", b"\x80\x02...", CheckpointKind.PICKLE),
        ("any.json", b'{"weight_map": {"a": "m.safetensors"}}', CheckpointKind.SAFETENSORS_INDEX),
        ("any.json", b'{"weight_map": {"a": "pytorch_model-1.bin"}}', CheckpointKind.PICKLE_INDEX),
        ("pytorch_model.bin.index.json", b"{", CheckpointKind.PICKLE_INDEX),
        ("model.safetensors.index.json", b"{", CheckpointKind.SAFETENSORS_INDEX),
        ("config.json", b'{"model_type": "bert"}', None),
        ("manifest.json", b'{"kind": "onnxledger-manifest"}', None),
        ("config.json", b"[1]", None),
        ("model.onnx", b"\x08\x0a\x12\x00", None),
    ],
)
def test_checkpoints_are_known_by_content_then_by_suffix(
    tmp_path: Path, name: str, content: bytes, kind: CheckpointKind | None
) -> None:
    (tmp_path / name).write_bytes(content)

    assert checkpoint_kind(tmp_path / name) is kind


def test_a_folder_and_nothing_are_no_checkpoints(tmp_path: Path) -> None:
    assert checkpoint_kind(tmp_path) is checkpoint_kind(tmp_path / "absent.safetensors") is None


def test_a_pickle_is_not_opened_here(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"\x80\x02")

    with pytest.raises(ManifestError, match="only torch reads"):
        open_checkpoint(tmp_path / "x.pt")


# the command


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = text_model("g (float[1,2] x) => (float[1,3] y) { y = MatMul(x, w) }", {"w": ramp(2, 3)})
    proto.graph.initializer[0].name = proto.graph.node[0].input[1] = "fc.weight"
    return save(tmp_path, proto)


def test_reconcile_takes_a_safetensors_file_and_says_how_it_was_read(model: Path, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "model.safetensors", {"fc.weight": ramp(2, 3)})

    result = run_here("reconcile", model, "--against", path, "--format", "json")

    document = json.loads(result.stdout)
    assert result.returncode == 0
    assert document["balanced"]
    assert document["content"] != "none"
    assert document["against"]["parameters_by"] == "names"
    assert (
        "parameters and buffers are told apart by their names: no config.json is beside it" in result.stderr
    )


def test_reconcile_sees_one_changed_value(model: Path, tmp_path: Path) -> None:
    changed = ramp(2, 3)
    changed[1, 2] += 1

    result = run_here(
        "reconcile", model, "--against", checkpoint(tmp_path / "m.safetensors", {"fc.weight": changed})
    )

    assert result.returncode == 1
    assert "fc.weight" in result.stdout


@pytest.mark.parametrize(
    ("prepare", "arguments", "sentence"),
    [
        (lambda path: path.write_bytes(b"nothing"), (), "no header begins at byte 8"),
        (lambda path: None, (), "no such file"),
        (lambda path: written(path, {}), ("--class", "BertModel"), "no config.json beside"),
        (lambda path: written(path, {}), ("--random-weights",), "no config.json is beside it"),
    ],
)
def test_what_cannot_be_answered_is_reported_in_a_sentence_and_exit_2(
    model: Path, tmp_path: Path, prepare: Callable[[Path], object], arguments: tuple[str, ...], sentence: str
) -> None:
    if arguments or sentence.startswith("no such"):
        pytest.importorskip("transformers")
    path = tmp_path / "m.safetensors"
    prepare(path)

    result = run_here("reconcile", model, "--against", path, *arguments)

    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_a_manifest_has_no_weights_to_make_up(model: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"kind": "onnxledger-manifest"}')

    result = run_here("reconcile", model, "--random-weights")

    assert result.returncode == 2
    assert "--random-weights" in result.stderr


@pytest.mark.child
def test_opening_a_checkpoint_imports_neither_torch_nor_transformers(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m.safetensors", {"fc.weight": ramp(2, 3)})
    code = (
        "import sys, pathlib, analyzer.checkpoints.checkpoint\n"
        "assert 'safetensors' not in sys.modules\n"
        f"analyzer.checkpoints.checkpoint.open_checkpoint(pathlib.Path({str(path)!r}))\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
