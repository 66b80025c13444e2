"""Models behind a URL are read in few rounds: guesses at the places of the next headers, right or wrong."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import fsspec
import numpy as np
import pytest
from encoding import head, varint
from servers import CountingServer, serving

from analyzer.errors import ModelReadError
from analyzer.model import Model
from analyzer.read import read_model
from analyzer.read.remote import AT_ONCE, Answer

pytest.importorskip("aiohttp", reason="needs the [remote] extra")

from analyzer.read.web import Web

HIDDEN, WIDE, LAYERS = 768, 3072, 12
TABLES = [
    ("embeddings.word", (30522, HIDDEN)),
    ("embeddings.position", (512, HIDDEN)),
    ("embeddings.type", (2, HIDDEN)),
]
MATRICES = [
    *[(f"attention.{name}", (HIDDEN, HIDDEN)) for name in ("query", "key", "value", "output")],
    ("intermediate", (WIDE, HIDDEN)),
    ("output", (HIDDEN, WIDE)),
]
VECTORS = [("norm.weight", (HIDDEN,)), ("norm.bias", (HIDDEN,))]

Tensors = Sequence[tuple[str, tuple[int, ...]]]


def interleaved() -> Tensors:
    """Tensors in the order of modules: a weight, its bias, the next weight; as of Linear layers stored unchanged."""
    layer = [
        (f"{name}.{leaf}", s)
        for name, shape in MATRICES
        for leaf, s in (("weight", shape), ("bias", shape[:1]))
    ]
    layers = [
        (f"layer.{i}.{name}", shape) for i in range(LAYERS) for name, shape in (*layer, *VECTORS, *VECTORS)
    ]
    return [*TABLES, *VECTORS, *layers, ("pooler.weight", (HIDDEN, HIDDEN)), ("pooler.bias", (HIDDEN,))]


def apart() -> Tensors:
    """Tensors as torch.onnx writes them: first those that kept their names, then the transposed matrices."""
    main = [each for each in interleaved() if len(each[1]) == 1 or "embeddings" in each[0]]
    matrices = [shape for name, shape in interleaved() if len(shape) == 2 and "embeddings" not in name]
    return [*main, *((f"val_{3 * index}", shape[::-1]) for index, shape in enumerate(matrices))]


def unlike() -> Tensors:
    """Matrices of which no two have one size: nothing repeats."""
    random = Random(7)
    return [(f"w{index}", (random.randrange(1 << 14, 1 << 20), 4)) for index in range(120)]


def write(path: Path, tensors: Tensors, nodes: int = 500, note: int = 2200) -> None:
    """Write a sparse file of these tensors; its nodes have notes as long as stack traces."""
    graph = []
    for index in range(nodes):
        name = b"node_%d" % index
        node = head(4, 8) + b"Identity" + head(2, len(name)) + name + head(6, note) + b"." * note
        graph.append((head(1, len(node)) + node, 0))
    for name, shape in tensors:
        dims = b"".join(b"\x08" + varint(dim) for dim in shape)
        hole = 4 * math.prod(shape)
        front = dims + b"\x10\x01" + head(8, len(name)) + name.encode() + head(9, hole)
        graph.append((head(5, len(front) + hole) + front, hole))
    graph += [(head(13, 102) + head(1, 100) + b"v" * 100, 0)] * 800
    size = sum(len(front) + hole for front, hole in graph)
    with path.open("wb") as file:
        file.write(b"\x08\x0a" + head(7, size))
        for front, hole in graph:
            file.write(front)
            file.seek(hole, os.SEEK_CUR)
        file.write(b"\x42\x02\x10\x14")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CountingServer]:
    with serving(tmp_path) as found:
        yield found


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the number of concurrent requests of each round."""
    found: list[int] = []
    request_web = Web.request

    def counted(web: Web, url: str, ranges: Sequence[tuple[int, int]]) -> list[Answer]:
        found.extend(len(ranges[start : start + AT_ONCE]) for start in range(0, len(ranges), AT_ONCE))
        return request_web(web, url, ranges)

    monkeypatch.setattr(Web, "request", counted)
    return found


def describe_tensors(model: Model) -> list[object]:
    return [(tensor.name, tensor.shape, tensor.extent and tensor.extent.offset) for tensor in model.tensors()]


@pytest.mark.parametrize("layout", [apart, interleaved])
def test_bert_in_one_file_takes_25_rounds_and_3_megabytes(server, rounds, layout):
    path = server.folder / "model.onnx"
    write(path, layout())

    remote = read_model(server.url("model.onnx"))

    assert path.stat().st_size > 437_928_960
    assert describe_tensors(remote) == describe_tensors(read_model(path))
    assert remote.structure == read_model(path).structure
    assert len(rounds) <= 25
    assert server.sent.total() < 3_000_000
    assert server.most_at_once <= AT_ONCE


def test_a_file_in_which_nothing_repeats_is_read_as_well(server, rounds):
    path = server.folder / "model.onnx"
    write(path, unlike(), nodes=1)

    remote = read_model(server.url("model.onnx"))

    assert describe_tensors(remote) == describe_tensors(read_model(path))
    assert len(rounds) < len(unlike()) + 10
    assert server.sent.total() / len(unlike()) < 1 << 15


def test_the_nodes_of_a_model_with_external_data_take_few_rounds(server, rounds):
    write(server.folder / "model.onnx", [], nodes=2000)

    remote = read_model(server.url("model.onnx"))

    assert len(remote.graphs[0].nodes) == 2000
    assert len(rounds) <= 14  # of 4.6 MB


def test_a_small_model_is_one_request_and_a_check(server, rounds):
    write(server.folder / "model.onnx", [("w", (2,))], nodes=1, note=10)
    content = (server.folder / "model.onnx").read_bytes()
    assert len(content) > 2048

    read_model(server.url("model.onnx"))

    assert server.sent.total() < len(content) + 3 * 2048


@pytest.mark.parametrize("after", [3, 12, 18])
def test_a_file_that_changes_between_two_rounds_is_refused(server, monkeypatch, after):
    write(server.folder / "model.onnx", apart())
    request_web, requested = Web.request, []

    def changing(web: Web, url: str, ranges: Sequence[tuple[int, int]]) -> list[Answer]:
        requested.append(ranges)
        if len(requested) == after:
            server.switches.etag = '"two"'
        return request_web(web, url, ranges)

    monkeypatch.setattr(Web, "request", changing)

    with pytest.raises(ModelReadError, match="changed while it was read"):
        read_model(server.url("model.onnx"))
    assert len(requested) == after


def test_a_guess_that_another_version_answers_is_a_change(server, monkeypatch):
    write(server.folder / "model.onnx", apart())
    request_web = Web.request

    def mixed(web: Web, url: str, ranges: Sequence[tuple[int, int]]) -> list[Answer]:
        answers = request_web(web, url, ranges)
        return [*answers[:-1], Answer(answers[-1].body, marks=('"two"', ""))] if len(answers) > 4 else answers

    monkeypatch.setattr(Web, "request", mixed)

    with pytest.raises(ModelReadError, match="changed while it was read"):
        read_model(server.url("model.onnx"))


def test_a_server_that_refuses_many_ranges_at_a_time_is_sent_one(server):
    path = server.folder / "model.onnx"
    write(path, apart())
    server.switches.at_once = 2

    remote = read_model(server.url("model.onnx"))

    assert describe_tensors(remote) == describe_tensors(read_model(path))


def test_other_bytes_than_were_requested_are_refused(server):
    write(server.folder / "model.onnx", apart())
    server.switches.content_range = "bytes 5-{last}/{total}"

    with pytest.raises(ModelReadError, match="other bytes than requested"):
        read_model(server.url("model.onnx"))


def test_a_filesystem_that_reads_one_range_at_a_time_gets_no_guess(tmp_path):
    path = tmp_path / "model.onnx"
    write(path, [(f"w{index}", (1 << 13,)) for index in range(60)], nodes=20)
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/ahead/model.onnx", path.read_bytes())

    try:
        remote = read_model("memory://ahead/model.onnx")
    finally:
        filesystem.rm("/ahead", recursive=True)

    assert describe_tensors(remote) == describe_tensors(read_model(path))
    assert remote.traffic is not None
    assert remote.traffic.nbytes < 0.4 * path.stat().st_size


def test_what_reading_brought_is_at_hand_for_values(server, rounds):
    write(server.folder / "model.onnx", interleaved())
    remote = read_model(server.url("model.onnx"))
    before = len(rounds)

    near = [tensor for tensor in remote.tensors() if tensor.name == "layer.11.output.bias"]
    far = [tensor for tensor in remote.tensors() if tensor.name == "layer.11.output.weight"]
    middle = np.array([HIDDEN * WIDE // 2])

    assert [tensor.payload.array().shape for tensor in near] == [(HIDDEN,)]
    assert len(rounds) == before
    assert far[0].payload.at(middle) is not None
    assert len(rounds) == before + 1
