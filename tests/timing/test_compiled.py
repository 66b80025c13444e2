"""Parts that a provider compiled -> nodes that its kernels compute."""

from __future__ import annotations

from pathlib import Path

import models

from analyzer.model import Model
from analyzer.read import read_model
from analyzer.timing.attribution import COMPILED, NAMED, Origin, trace_compiled
from analyzer.timing.request import Kernel

LAYER = """
g (float[2,3] x) => (float[2,3] z) <float[3,3] w = {1,2,3,4,5,6,7,8,9}, float[3] b = {1,2,3}>
{
    [product] a = MatMul(x, w)
    [bias] c = Add(a, b)
    [act] z = Relu(c)
}
"""


def read(folder: Path) -> Model:
    return read_model(models.save(folder, models.text_model(LAYER)))


def test_a_part_that_a_provider_compiled_stands_for_the_nodes_in_it(tmp_path: Path) -> None:
    kernels = [Kernel("TRTKernel_graph_0_1", "TRT_1", "TRT"), Kernel("act", "Relu", "CPU")]
    model = read(tmp_path)

    found = trace_compiled(model, kernels, [("TRT", ("bias", "product")), ("CPU", ("act",))])

    assert found == [Origin((0, 1), COMPILED), Origin((2,), NAMED)]


def test_compiled_parts_that_cannot_be_told_apart_are_not_guessed(tmp_path: Path) -> None:
    kernels = [Kernel("TRTKernel_0", "TRT_1", "TRT")]
    model = read(tmp_path)

    assert trace_compiled(model, kernels, [("TRT", ("bias",)), ("TRT", ("act",))]) == [None]
