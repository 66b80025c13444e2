"""Shapes that onnxruntime knows before a run, found without it, compared with its own answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import save, text_model

from analyzer.cost.memory.opened import open_account
from tools.memory_matrix.truth import run

pytestmark = [pytest.mark.time, pytest.mark.usefixtures("forked_children", "newer_runtime")]

TEXT = """
<ir_version: 8, opset_import: ["": OPSET]>
g (float[2, 3, 64] x, float[b, s, 64] d) => (float[k] y)
<int64 one = {1}, int64 two = {2}, int64[1] zero = {0}, int64[1] last = {-1}, int64[2] both = {1, 2},
 int64[1] six = {6}>
{ BODY z = ConstantOfShape(u) y = Relu(z) }
"""


@pytest.mark.parametrize(
    ("opset", "body", "known"),
    [
        pytest.param(20, "u = Shape(x)", (2, 3, 64), id="sizes"),
        pytest.param(20, "u = Shape(d)", (None, None, None), id="of which some are not known"),
        pytest.param(20, "u = Shape<start=2>(d)", (64,), id="a part"),
        pytest.param(20, "v = Shape(x) u = Cast<to=7>(v)", (2, 3, 64), id="a Cast"),
        pytest.param(12, "v = Shape(x) u = Cast<to=7>(v)", (None,) * 3, id="an older Cast"),
        pytest.param(20, "v = Shape(x) u = Identity(v)", (None,) * 3, id="an Identity"),
        pytest.param(20, "v = Shape(x) u = Concat<axis=0>(v, v)", (2, 3, 64, 2, 3, 64), id="together"),
        pytest.param(20, "v = Shape(x) u = Concat<axis=0>(six, v)", (None,) * 4, id="with a stored number"),
        pytest.param(20, "v = Shape(x) i = Gather(v, one) u = Unsqueeze(i, zero)", (3,), id="one of them"),
        pytest.param(12, "v = Shape(x) i = Gather(v, one) u = Unsqueeze<axes=[0]>(i)", (3,), id="an older one"),
        pytest.param(20, "v = Shape(x) u = Gather(v, last)", (64,), id="a vector of one"),
        pytest.param(20, "v = Shape(x) u = Gather(v, both)", (None, None), id="two at once"),
        pytest.param(20, "v = Shape(d) i = Gather(v, two) u = Unsqueeze(i, zero)", (None,), id="one of some"),
        pytest.param(20, "v = Shape(x) i = Gather(v, zero) u = Gather(v, i)", (64,), id="by a number that follows"),
        pytest.param(20, "v = Shape(x) u = Slice(v, zero, six)", (None,) * 3, id="a Slice"),
        pytest.param(20, "v = Shape(x) i = Gather(v, one) j = Gather(v, two) m = Mul(i, j) u = Unsqueeze(m, zero)",
                     (192,), id="a product"),
        pytest.param(20, "v = Shape(x) i = Gather(v, one) j = Gather(v, two) m = Div(j, i) u = Unsqueeze(m, zero)",
                     (21,), id="a quotient"),
        pytest.param(20, "v = Shape(x) i = Gather(v, one) m = Mul(i, two) u = Unsqueeze(m, zero)", (None,),
                     id="a product with a stored number"),
        pytest.param(20, "v = Shape(x) i = Gather(v, last) j = Gather(v, one) u = Sub(i, j)", (61,), id="of one"),
        pytest.param(20, "v = Shape(x) i = Gather(v, last) u = Add(v, i)", (66, 67, 128), id="a vector and one"),
        pytest.param(20, "v = Shape(x) i = Gather(v, two) u = Add(v, i)", (None,) * 3, id="a vector and a scalar"),
        pytest.param(12, "v = Shape(x) u = Add(v, v)", (None,) * 3, id="an older sum"),
        pytest.param(20, "v = Shape<end=1>(x) i = Squeeze(v) u = Unsqueeze(i, zero)", (2,), id="a Squeeze"),
        pytest.param(20, "v = Shape(x) i = Gather(v, one) c = Cast<to=7>(i) u = Unsqueeze(c, zero)", (None,),
                     id="a Cast of one"),
        pytest.param(20, "u = Constant<value_ints=[2, 5]>()", (2, 5), id="a list"),
    ],
)  # fmt: skip
def test_what_is_known_is_what_onnxruntime_knows(
    tmp_path: Path, opset: int, body: str, known: tuple[int | None, ...]
) -> None:
    proto = text_model(TEXT.replace("OPSET", str(opset)).replace("BODY", body), {})
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    path = save(tmp_path, proto)

    for level in (None, "none"):
        with open_account(path, level=level) as account:
            assert account.program.values["z"].shape == known, level


def test_an_axis_that_the_file_names_is_no_number_that_follows_from_a_stored_one(tmp_path: Path) -> None:
    """TorchScript writes this: a Reshape to -1 and a number that onnxruntime does not follow."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[n, 2, 8] x) => (float[k, m] y) <int64[1] all = {-1}, int64 two = {2}, int64[1] zero = {0}>
    {
        s = Shape(x) i = Gather(s, two) v = Unsqueeze(i, zero) t = Concat<axis=0>(all, v)
        a = Reshape(x, t) b = Exp(a) c = MatMul(b, w) d = MatMul(c, wide) e = Gemm(d, back, c) y = Exp(e)
    }
    """
    weights = {
        name: np.ones(dims, np.float32)
        for name, dims in (("w", (8, 8)), ("wide", (8, 16)), ("back", (16, 8)))
    }
    proto = text_model(text, weights)
    stated = {"a": ["n1", "n2"], "b": ["n1", "n2"], "c": ["n1", 8], "d": ["n1", 16], "e": ["n1", 8]}
    for name, dims in stated.items():
        proto.graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims))
    path = save(tmp_path, proto)
    ran = run(path, {"x": np.ones((3, 2, 8), np.float32)}, "none").nodes

    with open_account(path) as account:
        needed = account.needed({"n": 3})

    assert needed.peak is not None
    assert needed.peak.lives == tuple(node.live for node in ran)


def test_an_axis_keeps_its_name_through_a_convolution_of_onnxruntime_s_own(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[n, 3, 8, 8] x) => (float[n, 5, 6, 6] y)
    { h = com.microsoft.FusedConv<activation = "Relu", kernel_shape = [3, 3]>(x, k) y = Exp(h) }
    """
    path = save(tmp_path, text_model(text, {"k": np.ones((5, 3, 3, 3), np.float32)}))

    for level in (None, "none"):
        with open_account(path, level=level) as account:
            assert account.program.values["h"].shape == ("n", 5, 6, 6), level
