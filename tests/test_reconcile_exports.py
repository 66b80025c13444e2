"""Real exports reconcile to zero, and tampered tensors are named."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exports import CONFIGS, TYPED, Exported, Exports
from models import Values, packed, quantized, without_values
from onnx import helper, numpy_helper
from samples import sampled

from analyzer import Manifest, audit_model, load_manifest, reconcile_ledger
from analyzer.model.content import Array, encode_values, sample, sample_positions
from analyzer.reconciliation import Line, Reconciliation

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.export

NAMES = [*CONFIGS, "factory"]
FOLDED = {"resnet", "factory"}
UNREAD = {"bert-untied"}
"""Exports of models that have an unread bias beside the bias of the output matrix."""


def elements(result: Reconciliation) -> dict[Line, int]:
    return {row.line: row.elements for row in result.bridge if row.tensors}


def pytorch_count(exported: Exports, name: str, **how: str) -> int:
    return sum(parameter.numel() for parameter in exported(name, **how).resolved.model.parameters())


@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_an_export_reconciles_to_zero(exported: Exports, name: str, dtype: str) -> None:
    files = exported(name, dtype).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path))

    assert result.balanced
    assert result.content == "full"
    assert result.manifest.numel == pytorch_count(exported, name, dtype=dtype)
    assert (Line.FOLDED_BATCHNORM in elements(result)) == (name in FOLDED)


@pytest.mark.parametrize(
    ("name", "via"),
    sampled(
        [
            (name, via)
            for name in ("bert", "gpt2", "t5", "resnet", "factory")
            for via in ("dynamo", "torchscript")
        ],
        [
            *((name, "torchscript") for name in ("bert", "gpt2", "t5", "factory")),
            ("resnet", "dynamo"),
        ],
    ),
)
def test_other_exporters_files_reconcile_to_zero(exported: Exports, name: str, via: str) -> None:
    files = exported(name, via=via).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path))

    assert result.balanced


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FOLDED | UNREAD])
def test_the_file_alone_says_pytorchs_count(exported: Exports, name: str) -> None:
    files = exported(name).files

    ledger = audit_model(files.model)

    assert ledger.parameters == pytorch_count(exported, name)


@pytest.mark.parametrize("name", sorted(UNREAD))
def test_what_nothing_reads_is_not_in_the_file_and_has_its_line(exported: Exports, name: str) -> None:
    files = exported(name, via="torchscript").files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path))

    unused = elements(result)[Line.UNUSED]
    assert unused == CONFIGS[name]["vocab_size"]
    assert audit_model(files.model).parameters == pytorch_count(exported, name, via="torchscript") - unused


@pytest.mark.parametrize("name", sampled(["bert", "resnet", "vit"], ["bert", "resnet"]))
def test_a_fresh_initialization_reconciles_to_zero(exported: Exports, name: str) -> None:
    files = exported(name, fresh=True).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path))

    assert result.balanced
    assert elements(result).get(Line.DEDUPLICATED) or name == "resnet"


@pytest.mark.parametrize(
    ("name", "line"),
    sampled(
        [
            ("bert", Line.SLICED),
            ("gpt2", Line.SLICED),
            ("vit", Line.BROADCAST),
            ("whisper", Line.GATHERED),
        ],
        [("bert", Line.SLICED), ("vit", Line.BROADCAST), ("whisper", Line.GATHERED)],
    ),
)
def test_a_static_export_reconciles_to_zero(exported: Exports, name: str, line: Line) -> None:
    files = exported(name, static=True).files

    for content in ("full", "none"):
        result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path), content)

        assert result.balanced
        assert content == "none" or elements(result)[line]


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_a_fresh_initialization_by_the_legacy_exporter_reconciles_to_zero(
    exported: Exports, name: str
) -> None:
    files = exported(name, via="torchscript", fresh=True).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path))

    assert result.balanced


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "vit", "resnet", "llama"])
def test_names_and_shapes_balance_where_contents_are_not_compared(exported: Exports, name: str) -> None:
    files = exported(name).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path), "none")

    assert result.balanced
    assert all(line.max_abs_error is None for line in result.parameters)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_sampled_contents_balance_too(exported: Exports, name: str) -> None:
    files = exported(name).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path), "sampled")

    assert result.balanced


def test_a_census_of_the_config_balances_without_contents(exported: Exports) -> None:
    from exporter import census_source

    files = exported("bert").files

    original = census_source(str(files.model.parent / "config.json"))
    result = reconcile_ledger(audit_model(files.model), original.manifest, weights=original.weights)

    assert result.balanced
    assert result.content == "none"


def test_another_seed_is_another_model(exported: Exports) -> None:
    from exporter import census_source

    files = exported("bert").files
    other = census_source(str(files.model.parent / "config.json"), random_weights=True, seed=1)

    result = reconcile_ledger(audit_model(files.model), other.manifest, weights=other.weights)

    assert not result.balanced
    assert {line.line for line in result.parameters} == {Line.DIFFERING}


@pytest.mark.parametrize("name", ["bert", "resnet", "vit"])
def test_an_export_reconciles_with_the_checkpoint_that_it_was_made_of(
    exported: Exports, tmp_path: Path, name: str
) -> None:
    from exporter import census_source
    from exporter.quiet import quiet

    made = exported(name)
    with quiet():
        made.resolved.model.save_pretrained(tmp_path)

    original = census_source(str(tmp_path / "model.safetensors"))

    ledger = audit_model(made.files.model)
    assert reconcile_ledger(ledger, original.manifest, "full", weights=original.weights).balanced


def test_a_seed_makes_the_weights_of_the_export_again(exported: Exports) -> None:
    from exporter import census_source

    files = exported("bert").files
    config = str(files.model.parent / "config.json")

    same = census_source(config, random_weights=True, seed=0)

    assert reconcile_ledger(audit_model(files.model), same.manifest, "full", weights=same.weights).balanced


# Tampering: each function takes the graph of a copy and returns the PyTorch or file name that must be named.


def change_one_ulp(graph: onnx.GraphProto) -> str:
    weight = next(t for t in graph.initializer if t.name.endswith("query.bias"))
    values = numpy_helper.to_array(weight).copy()
    values[3] = np.nextafter(values[3], np.float32(np.inf))
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    return weight.name


def drop_one(graph: onnx.GraphProto) -> str:
    index = next(i for i, t in enumerate(graph.initializer) if t.name.endswith("key.bias"))
    return graph.initializer.pop(index).name


def add_one(graph: onnx.GraphProto) -> str:
    graph.initializer.append(numpy_helper.from_array(np.ones((3, 4), np.float32), "extra.weight"))
    return "extra.weight"


def zero_a_bias(graph: onnx.GraphProto) -> str:
    bias = next(t for t in graph.initializer if t.name.endswith("value.bias"))
    bias.CopyFrom(numpy_helper.from_array(np.zeros(tuple(bias.dims), np.float32), bias.name))
    return bias.name


def cut_rows(graph: onnx.GraphProto) -> str:
    table = next(t for t in graph.initializer if t.name.endswith("position_embeddings.weight"))
    table.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(table)[:-1].copy(), table.name))
    return table.name


def swap_two(graph: onnx.GraphProto) -> str:
    one, other = [t for t in graph.initializer if t.name.endswith("output.dense.bias")][:2]
    ours, theirs = numpy_helper.to_array(one).copy(), numpy_helper.to_array(other).copy()
    one.CopyFrom(numpy_helper.from_array(theirs, one.name))
    other.CopyFrom(numpy_helper.from_array(ours, other.name))
    return one.name


@pytest.mark.parametrize("tamper", [change_one_ulp, drop_one, add_one, zero_a_bias, cut_rows, swap_two])
def test_tampering_is_found_and_named(
    exported: Exports, tmp_path: Path, tamper: Callable[[onnx.GraphProto], str]
) -> None:
    files = exported("bert").files
    shutil.copytree(files.model.parent, tmp_path / "copy")
    model = onnx.load(tmp_path / "copy" / "model.onnx")
    culprit = tamper(model.graph)
    onnx.save(model, tmp_path / "copy" / "model.onnx")

    result = reconcile_ledger(
        audit_model(tmp_path / "copy" / "model.onnx"), load_manifest(files.manifest_path)
    )

    assert not result.balanced
    assert culprit in {subject for finding in result.findings for subject in finding.subjects}


def test_a_changed_folded_convolution_is_found(exported: Exports, tmp_path: Path) -> None:
    files = exported("resnet").files
    model = onnx.load(files.model)
    weight = next(t for t in model.graph.initializer if len(t.dims) == 4)
    values = numpy_helper.to_array(weight).copy()
    values.flat[5] += 0.05
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(model, tmp_path / "model.onnx")

    result = reconcile_ledger(audit_model(tmp_path / "model.onnx"), load_manifest(files.manifest_path))

    assert weight.name in {subject for finding in result.findings for subject in finding.subjects}


# Tampering that each kind of evidence detects: `CASES` has the expected results.
#
# Each changed file is reconciled three times: at samples and in full against the manifest, which has digests and
# samples but no values, and in full against the checkpoint.


def stored(graph: onnx.GraphProto, ending: str) -> onnx.TensorProto:
    return next(t for t in graph.initializer if t.name.endswith(ending))


def matrices(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """Return the square weights of attention, in file order; only the exporter's notes name them."""
    return [
        t for t in graph.initializer if list(t.dims) == [32, 32] and t.name.startswith(("val_", "onnx::"))
    ]


def put(tensor: onnx.TensorProto, array: Array) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))


def between(numel: int) -> int:
    """Return a position that is not sampled."""
    return next(iter(set(range(numel)) - set(sample_positions(numel).tolist())))


def change(tensor: onnx.TensorProto, position: int, by: Callable[[Any], Any]) -> None:
    array = numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[position] = by(array.reshape(-1)[position])
    put(tensor, array)


def one_ulp(number: Any) -> Any:
    return np.nextafter(number, type(number)(np.inf))


def as_it_is(graph: onnx.GraphProto) -> None:
    pass


def as_halves(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            with np.errstate(over="ignore"):  # a mask's value becomes infinity
                put(tensor, numpy_helper.to_array(tensor).astype(np.float16))


def replace_matrices(
    graph: onnx.GraphProto,
    make: Callable[[str, Array], dict[str, Array]],
    node: Callable[[onnx.NodeProto, list[str]], None],
) -> None:
    for tensor in matrices(graph):
        name = tensor.name
        tensors = make(name, numpy_helper.to_array(tensor))
        graph.initializer.remove(tensor)
        graph.initializer.extend(numpy_helper.from_array(array, key) for key, array in tensors.items())
        for reader in [n for n in graph.node if name in n.input]:
            node(reader, list(tensors))


def in_eight_bits(graph: onnx.GraphProto) -> None:
    def decode(reader: onnx.NodeProto, names: list[str]) -> None:
        output = names[0].replace("_quantized", "_dequantized")
        graph.node.insert(
            list(graph.node).index(reader), helper.make_node("DequantizeLinear", names, [output])
        )
        reader.input[1] = output

    replace_matrices(graph, quantized, decode)


def in_four_bits(graph: onnx.GraphProto) -> None:
    def pack(reader: onnx.NodeProto, names: list[str]) -> None:
        reader.op_type, reader.domain = "MatMulNBits", "com.microsoft"
        reader.input[1:] = names
        how = {"K": 32, "N": 32, "bits": 4, "block_size": 16}
        reader.attribute.extend(helper.make_attribute(key, value) for key, value in how.items())

    replace_matrices(graph, lambda name, array: packed(name, array.T), pack)


def bias_at_a_sample(graph: onnx.GraphProto) -> None:
    change(stored(graph, "query.bias"), 3, one_ulp)


def word_at_a_sample(graph: onnx.GraphProto) -> None:
    change(stored(graph, "embeddings.weight"), 0, one_ulp)


def word_between_the_samples(graph: onnx.GraphProto) -> None:
    table = stored(graph, "position_embeddings.weight")
    change(table, between(64 * 32), one_ulp)


def matrix_between_the_samples(graph: onnx.GraphProto) -> None:
    # An element of the transposed matrix that PyTorch's samples do not include.
    row, column = divmod(between(32 * 32), 32)
    change(matrices(graph)[0], column * 32 + row, one_ulp)


def swap(one: onnx.TensorProto, other: onnx.TensorProto) -> None:
    ours, theirs = numpy_helper.to_array(one).copy(), numpy_helper.to_array(other).copy()
    put(one, theirs)
    put(other, ours)


def swap_matrices(graph: onnx.GraphProto) -> None:
    first, second = matrices(graph)[:2]
    swap(first, second)


def swap_rows(graph: onnx.GraphProto) -> None:
    """Swap two rows of the table of positions, of which a static export keeps only the rows of its length."""
    rows = next(t for t in graph.initializer if len(t.dims) == 3 and t.dims[2] == 32)
    array = numpy_helper.to_array(rows).copy()
    array[:, [0, 1]] = array[:, [1, 0]]
    put(rows, array)


def swap_biases(graph: onnx.GraphProto) -> None:
    swap(stored(graph, "layer.0.output.dense.bias"), stored(graph, "layer.1.output.dense.bias"))


def scale_matrix(graph: onnx.GraphProto) -> None:
    put(matrices(graph)[0], numpy_helper.to_array(matrices(graph)[0]) * np.float32(2))


def turn_matrix(graph: onnx.GraphProto) -> None:
    put(matrices(graph)[0], numpy_helper.to_array(matrices(graph)[0]).T)


def turn_codes(graph: onnx.GraphProto) -> None:
    put(stored(graph, "_quantized"), numpy_helper.to_array(stored(graph, "_quantized")).T)


def turn_columns(graph: onnx.GraphProto) -> None:
    put(matrices(graph)[0], numpy_helper.to_array(matrices(graph)[0])[:, ::-1])


def cut_matrix(graph: onnx.GraphProto) -> None:
    put(matrices(graph)[0], numpy_helper.to_array(matrices(graph)[0])[:, :-4])


def replace_head(graph: onnx.GraphProto) -> None:
    tensor = stored(graph, "predictions.transform.dense.bias")
    put(tensor, np.random.default_rng(0).standard_normal(32).astype(np.float32))


def zero_bias(graph: onnx.GraphProto) -> None:
    put(stored(graph, "value.bias"), np.zeros(32, np.float32))


def truncate(graph: onnx.GraphProto) -> None:
    tensor = stored(graph, "position_embeddings.weight")
    put(tensor, numpy_helper.to_array(tensor)[:-1])


def add_matrix(graph: onnx.GraphProto) -> None:
    graph.initializer.append(
        numpy_helper.from_array(np.random.default_rng(0).random((32, 32)).astype("f4"), "val_999")
    )
    graph.node.append(helper.make_node("MatMul", ["x", "val_999"], ["y_999"]))


def add_noted_matrix(graph: onnx.GraphProto) -> None:
    add_matrix(graph)
    note = graph.value_info.add(name="val_999").metadata_props.add()
    note.key, note.value = "pkg.onnxscript.optimizer.folded_from", "['val_998']"


def drop_bias(graph: onnx.GraphProto) -> None:
    graph.initializer.remove(stored(graph, "key.bias"))


def code_at_a_sample(steps: int) -> Callable[[onnx.GraphProto], None]:
    return lambda graph: change(
        stored(graph, "_quantized"), 0, lambda c: c + type(c)(steps if c < 100 else -steps)
    )


def code_between_the_samples(graph: onnx.GraphProto) -> None:
    row, column = divmod(between(32 * 32), 32)
    change(stored(graph, "_quantized"), column * 32 + row, lambda c: c + type(c)(3 if c < 100 else -3))


def by_three(byte: Any) -> Any:
    low = int(byte) & 15
    return type(byte)(int(byte) & 0xF0 | (low + 3 if low < 12 else low - 3))


def four_bits_at_a_sample(graph: onnx.GraphProto) -> None:
    change(stored(graph, "_Q4"), 0, by_three)


def four_bits_between_the_samples(graph: onnx.GraphProto) -> None:
    position = next(p for p in range(0, 32 * 32, 2) if p not in sample_positions(32 * 32))
    change(stored(graph, "_Q4"), position // 2, by_three)


def another_zero_point(graph: onnx.GraphProto) -> None:
    change(stored(graph, "_zero_point"), 0, lambda c: c + type(c)(3))


def another_scale(graph: onnx.GraphProto) -> None:
    change(stored(graph, "_scale"), 0, lambda s: s * type(s)(1.5))


def half_of_nothing(graph: onnx.GraphProto) -> None:
    change(stored(graph, "query.bias"), 0, lambda _: np.float16(6e-8))


def convolution_between_the_samples(by: float) -> Callable[[onnx.GraphProto], None]:
    def tamper(graph: onnx.GraphProto) -> None:
        kernels = [t for t in graph.initializer if len(t.dims) == 4 and t.dims[2] == 3]
        weight = max(kernels, key=lambda kernel: int(np.prod(kernel.dims)))
        change(weight, between(int(np.prod(weight.dims))), lambda w: w * type(w)(by))

    return tamper


def swap_folded_biases(graph: onnx.GraphProto) -> None:
    biases = [t for t in graph.initializer if t.name.endswith("convolution.weight_bias")]
    pairs = (
        (one, other) for one in biases for other in biases if one is not other and one.dims == other.dims
    )
    swap(*next(pairs))


def turn_kernel(graph: onnx.GraphProto) -> None:
    weight = next(t for t in graph.initializer if len(t.dims) == 4 and t.dims[2] == 3)
    put(weight, numpy_helper.to_array(weight).transpose(0, 1, 3, 2))


@dataclass(frozen=True)
class Case:
    """A tampering, and whether it is detected at samples, in full, and in full against the checkpoint."""

    tamper: Callable[[onnx.GraphProto], None]
    found: tuple[bool, bool, bool]
    prepare: Callable[[onnx.GraphProto], None] = as_it_is
    name: str = "bert"
    via: str | None = None
    static: bool = False


ALWAYS, WHOLE, BY_VALUES, NEVER = (
    (True, True, True),
    (False, True, True),
    (False, False, True),
    (False, False, False),
)

CASES = {
    "one ulp at a sample": Case(bias_at_a_sample, ALWAYS),
    "one ulp between the samples": Case(word_between_the_samples, WHOLE),
    "one ulp between the samples of a transposed matrix": Case(matrix_between_the_samples, WHOLE),
    "one ulp between the samples of a nameless matrix": Case(
        matrix_between_the_samples, WHOLE, via="torchscript"
    ),
    "one half ulp at a sample of a cast file": Case(bias_at_a_sample, ALWAYS, as_halves),
    "one half ulp between the samples of a cast file": Case(word_between_the_samples, WHOLE, as_halves),
    "the smallest half for zero": Case(half_of_nothing, ALWAYS, as_halves),
    "two biases swapped": Case(swap_biases, ALWAYS),
    "two matrices swapped": Case(swap_matrices, ALWAYS),
    "two nameless matrices swapped": Case(swap_matrices, ALWAYS, via="torchscript"),
    "a matrix times two": Case(scale_matrix, ALWAYS),
    "a nameless matrix times two": Case(scale_matrix, ALWAYS, via="torchscript"),
    "a square matrix turned": Case(turn_matrix, ALWAYS),
    "a nameless square matrix turned": Case(turn_matrix, ALWAYS, via="torchscript"),
    "an 8-bit square matrix turned": Case(turn_codes, ALWAYS, in_eight_bits),
    "a matrix's columns in another order": Case(turn_columns, ALWAYS),
    "a matrix cut": Case(cut_matrix, ALWAYS),
    "a head replaced": Case(replace_head, ALWAYS),
    "a bias zeroed": Case(zero_bias, ALWAYS),
    "a bias dropped": Case(drop_bias, ALWAYS),
    "a table truncated": Case(truncate, ALWAYS),
    "two rows of a static slice swapped": Case(swap_rows, ALWAYS, static=True),
    "a matrix added": Case(add_matrix, ALWAYS),
    "a matrix added with a forged note": Case(add_noted_matrix, ALWAYS),
    "an 8-bit code off by 3 at a sample": Case(code_at_a_sample(3), ALWAYS, in_eight_bits),
    "an 8-bit code off by 3 between the samples": Case(code_between_the_samples, BY_VALUES, in_eight_bits),
    "a 4-bit code off by 3 at a sample": Case(four_bits_at_a_sample, ALWAYS, in_four_bits),
    "a 4-bit code off by 3 between the samples": Case(four_bits_between_the_samples, BY_VALUES, in_four_bits),
    "another zero point": Case(another_zero_point, ALWAYS, in_eight_bits),
    "another scale": Case(another_scale, ALWAYS, in_eight_bits),
    "a folded kernel's element times 1.01 between the samples": Case(
        convolution_between_the_samples(1.01), WHOLE, name="resnet"
    ),
    "a folded kernel's element by one ulp": Case(
        convolution_between_the_samples(1 + 2**-23), NEVER, name="resnet"
    ),
    "two folded biases swapped": Case(swap_folded_biases, ALWAYS, name="resnet"),
    "a folded kernel turned": Case(turn_kernel, ALWAYS, name="resnet"),
}


def at_known_positions(manifest: Manifest, values: Values) -> Manifest:
    """Return the manifest with samples at the positions that `between` assumes, those of an empty salt."""

    def again(tensor: Any) -> Any:
        array = next((values[name] for name in tensor.names if name in values), None)
        if array is None or tensor.content is None:
            return tensor
        return replace(tensor, content=replace(tensor.content, samples=encode_values(sample(array))))

    return replace(
        manifest,
        salt="",
        parameters=tuple(map(again, manifest.parameters)),
        buffers=tuple(map(again, manifest.buffers)),
    )


def three_ways(made: Exported, path: Path) -> list[Reconciliation]:
    """Reconcile in three ways, without the values of small tensors, so that the tiny model counts as a large one."""
    manifest = load_manifest(made.files.manifest_path)
    vectors = {t.name for t in manifest.tensors if len(t.shape) <= 1}
    manifest = replace(
        manifest, values={name: text for name, text in manifest.values.items() if name in vectors}
    )
    state = made.resolved.model.state_dict(keep_vars=True)
    values = Values({name: tensor.detach().numpy() for name, tensor in state.items()})
    manifest = at_known_positions(manifest, values)
    ledger = audit_model(path)
    return [
        reconcile_ledger(ledger, manifest, "sampled"),
        reconcile_ledger(ledger, manifest, "full"),
        reconcile_ledger(ledger, without_values(manifest), "full", weights=values),
    ]


@pytest.mark.parametrize("name", CASES)
def test_each_tampering_is_found_by_the_evidence_that_shows_it(
    exported: Exports, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    made = exported(case.name, via=case.via, **({"static": True} if case.static else {}))
    model = onnx.load(made.files.model)
    case.prepare(model.graph)
    onnx.save(model, tmp_path / "model.onnx")
    whole = [result.balanced for result in three_ways(made, tmp_path / "model.onnx")]
    before = {tensor.name: tensor.SerializeToString() for tensor in model.graph.initializer}

    case.tamper(model.graph)
    onnx.save(model, tmp_path / "model.onnx")
    results = three_ways(made, tmp_path / "model.onnx")

    after = {tensor.name: tensor.SerializeToString() for tensor in model.graph.initializer}
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert whole == [True, True, True]
    assert changed
    assert tuple(not result.balanced for result in results) == case.found
    assert not case.found[2] or culprits(results[2], changed)


def culprits(result: Reconciliation, changed: set[str]) -> set[str]:
    """Return the named subjects: changed tensors, tensors of changed scales or zero points, and their parameters."""
    stems = tuple(re.sub(r"_(quantized|scale|zero_point|Q4|scales)$", "", name) for name in changed)
    subjects = {subject for finding in result.findings for subject in finding.subjects}
    in_them = {line.parameter for line in result.entries if line.key[1].startswith(stems)}
    return {subject for subject in subjects if subject.startswith(stems) or subject in in_them}
