"""Work and memory are computed without reading the weights' payload."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import run_here
from memory import MemoryFile, opened
from models import external, noise, save, text_model

from analyzer.account.audit import audit_model
from analyzer.cost.account import measure_cost

TEXT = """
g (float[b, 512] x) => (float[b, 8] y) {
    wide = MatMul(x, w) shaped = Reshape(wide, size) high = Tanh(shaped) y = MatMul(high, v)
}
"""
SIZE = np.array([-1, 1024], np.int64)


def test_of_the_weights_in_a_file_no_more_is_read_than_their_ends() -> None:
    weight = noise(512, 1024)
    proto = text_model(TEXT, {"w": weight, "v": noise(1024, 8), "size": SIZE})
    content = proto.SerializeToString()
    start = content.index(weight.tobytes())
    source = MemoryFile(content)

    with opened(source):
        report = measure_cost(audit_model(source.name, content="none"), sizes={"b": 2})

    assert report.is_complete
    assert str(report.total.macs) == "532480*b"
    pages = 2 * source.step  # contain the bytes before and after the weight
    assert source.bytes_read(start, start + weight.nbytes) <= pages < weight.nbytes / 50


@pytest.mark.child  # shape inference runs in a child process
def test_the_answer_is_the_same_where_the_file_of_the_weights_is_absent(tmp_path: Path) -> None:
    proto = text_model(TEXT, {"size": SIZE})
    weights = {"w": noise(512, 1024), "v": noise(1024, 8)}
    offset = 0
    for name, array in weights.items():
        fields = {"location": "weights.data", "offset": offset, "length": array.nbytes}
        proto.graph.initializer.append(external(name, list(array.shape), **fields))
        offset += array.nbytes
    path = save(tmp_path, proto)
    data = tmp_path / "weights.data"
    command = ("cost", path, "--shape", "b=2", "--memory", "1GiB", "--format", "json")

    data.write_bytes(b"".join(array.tobytes() for array in weights.values()))
    there = run_here(*command)
    data.unlink()
    absent = run_here(*command)

    assert (there.returncode, absent.returncode) == (0, 0)
    document = json.loads(absent.stdout)
    assert document["totals"]["macs"] == {"expression": "532480*b", "value": 1_064_960}
    assert json.loads(there.stdout) == document
