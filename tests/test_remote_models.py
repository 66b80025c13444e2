"""Models behind a URL: the same account as of the file, from a fraction of its bytes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from commands import run_here
from encoding import head, varint
from models import external, finding_ids, ramp, save, text_model
from onnx import TensorProto, numpy_helper
from servers import CountingServer, serving

from analyzer.account.audit import audit_model
from analyzer.errors import ModelReadError
from analyzer.read.source import open_source
from analyzer.schemas import load_schema

pytest.importorskip("aiohttp", reason="needs the [remote] extra")

LAYER = [(768, 768), (768,)] * 4 + [(3072, 768), (3072,), (768, 3072), (768,)] + [(768,)] * 4
BERT = [(30522, 768), (512, 768), (2, 768), (768,), (768,), *LAYER * 12, (768, 768), (768,)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[CountingServer]:
    with serving(folder) as server:
        yield server


def write_bert(path: Path) -> None:
    """Write a sparse file with BERT's parameters, 437,928,960 bytes in one piece."""
    heads = []
    nodes = b""
    for index, shape in enumerate(BERT):
        name = f"encoder.layer.{index}.weight".encode()
        dims = b"".join(b"\x08" + varint(dim) for dim in shape)
        front = dims + b"\x10\x01" + head(8, len(name)) + name + head(9, 4 * int(np.prod(shape)))
        heads.append((head(5, len(front) + 4 * int(np.prod(shape))) + front, 4 * int(np.prod(shape))))
        node = head(1, len(name)) + name + head(2, 3) + b"y%02x" % (index % 256) + head(4, 8) + b"Identity"
        nodes += head(1, len(node)) + node
    size = len(nodes) + sum(len(front) + hole for front, hole in heads)
    opset = b"\x42\x02\x10\x14"
    with path.open("wb") as file:
        file.write(b"\x08\x0a" + opset + head(7, size) + nodes)
        for front, hole in heads:
            file.write(front)
            file.seek(hole, os.SEEK_CUR)
        file.truncate()


def inspect(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_here("inspect", *arguments)


def document_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("inspect"))
    return document


def test_a_model_of_439_megabytes_is_answered_from_under_2(folder, server):
    write_bert(folder / "model.onnx")

    ledger = audit_model(server.url("model.onnx"))

    assert ledger.parameters == 109_482_240
    assert ledger.file_nbytes == (folder / "model.onnx").stat().st_size > 437_928_960
    assert server.sent.total() < 2_000_000
    assert ledger.model.traffic is not None
    assert (ledger.model.traffic.requests, ledger.model.traffic.nbytes) == (
        len(server.requests),
        server.sent.total(),
    )


def test_the_account_is_that_of_the_file(folder, server):
    write_bert(folder / "model.onnx")

    local, remote = (
        audit_model(place, content="none") for place in (folder / "model.onnx", server.url("model.onnx"))
    )

    assert remote.accounts == local.accounts
    assert remote.findings == local.findings
    assert [entry.tensor for entry in remote.entries] == [entry.tensor for entry in local.entries]


def test_the_report_says_what_reading_took(folder, server):
    save(folder, text_model("g (float[2] x) => (float[2] y) { y = Add(x, w) }", {"w": ramp(2)}))

    document = document_of(inspect(server.url("model.onnx"), "--format", "json"))
    text = inspect(server.url("model.onnx")).stdout

    assert document["model"]["path"] == server.url("model.onnx")
    assert document["model"]["files"] == [
        {"bytes": (folder / "model.onnx").stat().st_size, "path": "model.onnx"}
    ]
    remote = document["model"]["remote"]
    assert remote["requests"] == len(server.requests) / 2
    assert remote["bytes_read"] == server.sent.total() / 2
    assert document["content"] == "none"
    assert "requests" in text
    assert "Contents were not read" in text


def test_copies_are_found_where_contents_are_requested(folder, server):
    weights = {"a": ramp(8, 16), "b": np.ascontiguousarray(ramp(8, 16).T)}
    save(
        folder,
        text_model("g (float[1,8] x) => (float[1,8] y) { h = MatMul(x, a) y = MatMul(h, b) }", weights),
    )

    counted = [audit_model(server.url("model.onnx"), content=mode).parameters for mode in ("none", "sampled")]

    assert counted == [256, 128]


def test_external_data_is_checked_by_its_size_alone(folder, server):
    proto = text_model("g (float[4] x) => (float[4] y) { y = Sum(x, whole, cut, gone) }")
    proto.graph.initializer.extend(
        [
            external("whole", [1000], location="a.data", offset=0, length=4000),
            external("cut", [1000], location="a.data", offset=4096, length=4000),
            external("gone", [4], location="b.data"),
        ]
    )
    save(folder, proto)
    (folder / "a.data").write_bytes(b"x" * 5000)

    ledger = audit_model(server.url("model.onnx"))

    assert {"external-missing", "external-short"} <= set(finding_ids(ledger))
    assert server.sent["/a.data"] <= 1
    assert server.sent["/b.data"] == 0
    assert ledger.file_nbytes == (folder / "model.onnx").stat().st_size + 5000


@pytest.mark.parametrize("location", ["../secret.data", "/etc/passwd", "http://127.0.0.1:9/x.data"])
def test_no_location_is_followed_out_of_the_folder(folder, server, location):
    (folder / "inner").mkdir()
    (folder / "secret.data").write_bytes(bytes(16))
    proto = text_model("g (float[4] x) => (float[4] y) { y = Add(x, w) }")
    proto.graph.initializer.append(external("w", [4], location=location))
    save(folder / "inner", proto)

    ledger = audit_model(server.url("inner/model.onnx"))

    assert "external-escapes" in finding_ids(ledger)
    assert {request.path for request in server.requests} == {"/inner/model.onnx"}


def refuse(server: CountingServer, path: str = "model.onnx") -> str:
    result = inspect(server.url(path))
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_server_without_ranges_gets_a_sentence(folder, server):
    write_bert(folder / "model.onnx")
    server.switches.ranges = False

    message = refuse(server)

    assert "does not support range requests; download the file and name it" in message
    assert server.sent.total() < 43_792_896  # buffered before the connection was closed


def test_a_file_that_changes_in_between_gets_a_sentence(folder, server):
    save(folder, text_model("g (float[4] x) => (float[4] y) { y = Add(x, w) }", {"w": ramp(4)}))
    server.switches.etag = None
    server.switches.modified = None
    path = folder / "model.onnx"
    source = open_source(server.url("model.onnx"))
    path.write_bytes(path.read_bytes().replace(b"Add", b"Sub"))

    with pytest.raises(ModelReadError, match="changed while it was read"):
        source.check()


def test_where_a_redirect_led_is_reported(folder, server):
    save(folder, text_model("g (float[4] x) => (float[4] y) { y = Add(x, w) }", {"w": ramp(4)}))
    server.switches.redirects["/latest.onnx"] = server.url("model.onnx")

    document = document_of(inspect(server.url("latest.onnx"), "--format", "json"))

    assert document["model"]["remote"]["redirected_to"] == server.url("model.onnx")


def test_a_missing_model_gets_a_sentence(server):
    assert "404" in refuse(server) or "not there" in refuse(server)


@pytest.mark.child
def test_a_url_among_paths_is_a_row(folder, server):
    save(folder, text_model("g (float[4] x) => (float[4] y) { y = Add(x, w) }", {"w": ramp(4)}))

    result = inspect(folder / "model.onnx", server.url("model.onnx"), "--format", "json")

    rows = json.loads(result.stdout)["models"]
    assert [row["totals"]["stored_elements"] for row in rows] == [4, 4]
    assert rows[1]["path"] == server.url("model.onnx")


def test_double_precision_behind_a_url_is_counted(folder, server):
    proto = text_model("g (double[4] x) => (double[4] y) { y = Add(x, w) }")
    proto.graph.initializer.append(
        TensorProto(name="w", dims=[4], data_type=TensorProto.DOUBLE, double_data=[1, 2, 3, 4])
    )
    save(folder, proto)

    assert audit_model(server.url("model.onnx")).stored_elements == 4


def test_no_weight_is_read_to_see_whether_it_repeats_a_table(folder, server):
    weights = {"embeddings.weight": ramp(64, 96), "onnx::MatMul_9": ramp(96, 700)}
    text = "g (int64[n] x) => (float[n, 700] y) { h = Gather(e, x) y = MatMul(h, m) }"
    proto = text_model(text)
    rename = {"e": "embeddings.weight", "m": "onnx::MatMul_9"}
    for node in proto.graph.node:
        node.input[:] = [rename.get(name, name) for name in node.input]
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    save(folder, proto)

    ledger = audit_model(server.url("model.onnx"))

    assert ledger.parameters == 64 * 96 + 96 * 700
    assert server.sent.total() < 16_000 < ledger.file_nbytes / 10
