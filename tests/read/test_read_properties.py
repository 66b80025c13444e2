"""Properties of every file: the model equals protobuf's own reading, in every encoding."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from any_model import Artifact, Expected, any_model, expected_graphs
from bookkeeper import Bookkeeper
from encoding import Ways, rewrite
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from memory import MemoryFile, opened, read_memory
from models import save
from samples import drawn

from analyzer.account.audit import audit_model
from analyzer.errors import ModelReadError
from analyzer.model import Carrier, GraphPath, Model, StoredTensor
from analyzer.read import read_model
from analyzer.read.book import (
    ORPHANED,
    UNKNOWN,
)

pytestmark = pytest.mark.slow  # draws random models

steady = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=drawn(100),
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow],
)
steps = st.sampled_from([1, 7, 64, 4096, 1 << 14])
seeds = st.integers(0, 2**32)

_FILE_ORDER = {"initializer": 0, "sparse_initializer": 1}
"""Order of the two kinds of initializers, since writers may store either first; others follow node order."""


def source_of(artifact: Artifact, content: bytes | None = None, step: int = 1 << 14) -> MemoryFile:
    written = artifact.proto.SerializeToString() if content is None else content
    return MemoryFile(written, step, siblings=artifact.files)


def graphs_of(model: Model) -> dict[GraphPath, tuple[int, list[StoredTensor]]]:
    """Return the number of nodes and the tensors of each graph."""
    return {
        graph.path: (
            len(graph.nodes),
            sorted(graph.tensors, key=lambda tensor: _FILE_ORDER.get(tensor.carrier.value, 2)),
        )
        for graph in model.graphs
    }


def assert_as_expected(model: Model, artifact: Artifact) -> None:
    """Assert equal paths, nodes, and each tensor's name, carrier, type, shape, elements and payload."""
    found, expected = graphs_of(model), expected_graphs(artifact)
    assert {path: nodes for path, (nodes, _) in found.items()} == {
        p: nodes for p, (nodes, _) in expected.items()
    }
    for path, (_, tensors) in expected.items():
        assert [described(tensor) for tensor in found[path][1]] == [described(tensor) for tensor in tensors]
        for tensor, wanted in zip(found[path][1], tensors, strict=True):
            assert_payload(tensor, wanted)


def described(tensor: StoredTensor | Expected) -> tuple[Any, ...]:
    return (tensor.name, str(tensor.carrier), tensor.dtype, tensor.shape, tensor.numel)


def assert_payload(tensor: StoredTensor, expected: Expected) -> None:
    array = tensor.payload.array()
    if expected.content is None:
        assert array is None
        return
    content = expected.content.reshape(tensor.shape)
    assert array is not None
    assert (array.dtype, array.shape, array.tobytes()) == (content.dtype, content.shape, content.tobytes())
    some = np.arange(tensor.numel)[::-2]
    assert tensor.payload.at(some).tobytes() == content.reshape(-1)[some].tobytes()


def sum_of(model: Model) -> int:
    """Bytes of the model file: its accounts plus the payload inside it."""
    inside = sum(t.nbytes - (t.extent.length if t.extent else 0) for t in model.tensors())
    return inside + sum(nbytes for _, nbytes in model.structure)


# against protobuf and onnx


class AllDrawnError(Exception):
    pass


def test_random_models_carry_tensors_in_every_way():
    """Every carrier must appear, because the tests here check none that `any_model` never draws."""
    lacking = {carrier.value for carrier in Carrier}

    @settings(parent=steady, max_examples=2000, phases=[Phase.generate])  # draws depend on our source code
    @given(any_model())
    def draw(artifact: Artifact) -> None:
        for _, tensors in expected_graphs(artifact).values():
            lacking.difference_update(each.carrier for each in tensors)
        if not lacking:
            raise AllDrawnError

    with pytest.raises(AllDrawnError):
        draw()


@steady
@given(any_model(), steps)
def test_model_is_what_protobuf_reads_however_small_the_pieces(artifact, step):
    source = source_of(artifact, step=step)

    model = read_memory(source)

    assert_as_expected(model, artifact)
    assert model == read_memory(source_of(artifact))
    assert sum_of(model) == source.nbytes
    assert {finding for finding, _, _ in model.unread} <= {
        "undefined-input"
    }  # reference attributes outside a function have no caller


@steady
@given(any_model())
def test_file_on_disk_is_what_onnx_loads(artifact):
    with TemporaryDirectory() as folder:
        (Path(folder) / "w.bin").write_bytes(artifact.files["w.bin"])
        path = save(Path(folder), artifact.proto)

        model = read_model(path)
        loaded = onnx.load(str(path), load_external_data=False)

        assert_as_expected(model, Artifact(loaded, artifact.files))
        assert sum_of(model) == path.stat().st_size
        uses_file = any(tensor.extent is not None for tensor in model.tensors())
        assert [file.path for file in model.files] == ["model.onnx"] + ["w.bin"] * uses_file


@steady
@given(any_model(), seeds, steps, st.booleans())
def test_every_way_to_write_a_model_is_the_same_model(artifact, seed, step, unknown):
    content = rewrite(artifact.proto, Ways(random.Random(seed), unknown=unknown))
    parsed = onnx.ModelProto.FromString(content)
    parsed.DiscardUnknownFields()
    assert parsed == artifact.proto  # protobuf's own reader agrees

    model = read_memory(source_of(artifact, content, step))

    assert_as_expected(model, artifact)
    assert sum_of(model) == len(content)


@steady
@given(any_model(), seeds)
def test_unknown_fields_anywhere_are_in_no_other_account_than_that_of_what_holds_them(artifact, seed):
    """An account may grow by unknown fields inside a part that it books whole, such as an opset; none shrinks."""
    ways = Ways(random.Random(seed), "usual", False, False, False, False, unknown=True)
    usual, odd = artifact.proto.SerializeToString(), rewrite(artifact.proto, ways)

    before, after = (read_memory(source_of(artifact, content)) for content in (usual, odd))

    grown = Counter(dict(after.structure))
    grown.subtract(dict(before.structure))
    assert sum(grown.values()) == len(odd) - len(usual)
    assert min(grown.values()) >= 0
    assert grown[UNKNOWN] > 0
    assert [(g.path, g.nodes, g.inputs, g.outputs) for g in after.graphs] == [
        (g.path, g.nodes, g.inputs, g.outputs) for g in before.graphs
    ]
    assert [t.nbytes for t in after.tensors()] == [t.nbytes for t in before.tensors()]


# every account, counted in another way


@steady
@given(any_model(), steps)
def test_every_account_is_what_protobuf_says_its_fields_take(artifact, step):
    expected = Bookkeeper(artifact.proto).nbytes

    model = read_memory(source_of(artifact, step=step))

    assert dict(model.structure) == {name: expected[name] for name, _ in model.structure}
    assert dict(model.structure)[ORPHANED] == 0


# broken files


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Return the content with a few bytes changed, removed, inserted, or copied from elsewhere."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        place = chance.randrange(len(changed) + 1)
        few = chance.choice((1, 1, 2, 8))
        match chance.randrange(4):
            case 0:
                changed[place : place + 1] = chance.randbytes(1)
            case 1:
                del changed[place : place + few]
            case 2:
                changed[place:place] = chance.randbytes(few)
            case _:
                start = chance.randrange(len(changed) + 1)
                changed[place:place] = changed[start : start + 5 * few]
    return bytes(changed)


def mutations(artifact: Artifact, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    content = artifact.proto.SerializeToString()
    for _ in range(6):
        yield mutated(content, chance)


@steady
@given(any_model(), seeds)
def test_file_with_wrong_bytes_is_audited_or_refused(artifact, seed):
    for content in mutations(artifact, seed):
        with opened(source_of(artifact, content)):
            try:
                ledger = audit_model("/memory/model.onnx")
            except ModelReadError as error:
                assert "/memory/model.onnx: " in str(error)  # noqa: PT017
                continue
        assert sum(account.nbytes for account in ledger.accounts) == ledger.file_nbytes
        assert all(entry.tensor.numel >= 0 for entry in ledger.entries)


@steady
@given(any_model(), seeds)
def test_file_with_wrong_bytes_that_protobuf_reads_has_the_same_nodes_and_elements(artifact, seed):
    for content in mutations(artifact, seed):
        try:
            proto = onnx.ModelProto.FromString(content)
        except DecodeError:
            continue
        if not proto.HasField("graph"):
            continue

        model = read_memory(source_of(artifact, content))

        bodies = list(bodies_of(proto))
        assert sum(1 for _ in model.nodes()) == sum(len(body.node) for body in bodies)
        stored = sum(t.numel for t in model.tensors() if not t.carrier.value.endswith("_list"))
        assert stored == sum(numel for body in bodies for numel in elements_of(body))


def bodies_of(proto: onnx.ModelProto) -> Iterator[Any]:
    """Yield every graph and function, at any depth."""
    waiting: list[Any] = [proto.graph, *proto.functions]
    waiting += [graph for info in proto.training_info for graph in (info.initialization, info.algorithm)]
    while waiting:
        body = waiting.pop()
        yield body
        for attribute in attributes_of(body):
            waiting += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]


def attributes_of(body: Any) -> Iterator[onnx.AttributeProto]:
    for node in body.node:
        yield from node.attribute


def elements_of(body: Any) -> Iterator[int]:
    """Yield the number of stored elements of each tensor in one body; a negative shape cannot be counted."""
    tensors = list(getattr(body, "initializer", ()))
    tensors += [sparse.values for sparse in getattr(body, "sparse_initializer", ())]
    for attribute in (*attributes_of(body), *getattr(body, "attribute_proto", ())):
        tensors += [*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors]
        sparse = [
            *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []),
            *attribute.sparse_tensors,
        ]
        tensors += [item.values for item in sparse]
    for tensor in tensors:
        yield math.prod(tensor.dims) if min(tensor.dims, default=0) >= 0 else 0
