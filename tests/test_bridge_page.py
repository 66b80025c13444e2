"""docs/reference/bridge.md: each picture shows a tiny model and `reconcile`'s answer for it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from models import (
    FX_NODE,
    buffer,
    convolution,
    manifest_of,
    packed,
    parameter,
    quantized,
    save,
    set_metadata,
    table,
    text_model,
    traced,
)

from analyzer.account.audit import audit_model
from analyzer.manifest import BatchNorm, Manifest, Program, WeightNorm
from analyzer.model import Key
from analyzer.model.content import Array, encode_values
from analyzer.reconciliation import RULES, Line, Reconciliation, reconcile_ledger

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "reference" / "bridge.md"

_BLOCK = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Picture:
    """Tensors of PyTorch and of the file, and the file's nodes."""

    pytorch: Mapping[str, Array]
    stored: Mapping[str, Array]
    """Tensors by name; in an artifact, by component and name."""
    model: str | Mapping[str, str]
    """ONNX text; in an artifact, by component."""
    buffers: Mapping[str, Array] = field(default_factory=dict)
    tables: bool = False
    """Whether the matrices are tables, whose rows the manifest describes."""
    tied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: tuple[str, ...] | None = None
    """Parameters that the traced program does not read; None without a trace."""
    batch_norm: BatchNorm | None = None
    weight_norm: WeightNorm | None = None
    program: Program | None = None
    traced: str = ""
    """Parameter that a traced node names, in the exporter's spelling."""
    undescribed: tuple[str, ...] = ()
    """Parameters whose values PyTorch's side does not describe."""
    hidden: tuple[str, ...] = ()
    """Tensors of the file that the picture leaves out."""


def floats(*rows: object) -> npt.NDArray[np.float32]:
    return np.array(rows, dtype=np.float32)


# contents of the pictures


W = floats([1, 2, 3], [4, 5, 6])
SQUARE = floats([1, 2, 3], [4, 5, 6], [7, 8, 9])
TABLE = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
QUERY, KEY, VALUE = (np.arange(n, n + 4, dtype=np.float32).reshape(2, 2) for n in (1, 5, 9))
EXPERTS = np.arange(1, 13, dtype=np.float32).reshape(2, 3, 2)
ZEROS, ONES = np.zeros(3, np.float32), np.ones(3, np.float32)
REALS = floats([-1.0, 0.504, 0.257], [1.538, 0.004, -0.77])
HALVES = floats([0.1, 70000, 1e-9], [-2, 0.3333333, -70000])
BLOCK = floats(
    [-0.7, -0.41, 0.03, 0.7, -0.52, 0.36, 0.2, 0.11, -0.6, 0.5, -0.33, 0.04, -0.1, -0.22, 0.68, 0.4]
)

GATES = floats([1, 2], [3, 4], [5, 6], [7, 8])
"""Gates of an LSTM with one hidden unit: i, f, g, o."""
ONNX_GATES = [0, 3, 1, 2]

CONV = floats([1, 2, 3], [-1, 0, 1]).reshape(2, 3, 1)
NORM = {
    "bn.weight": floats(4, 3)[()],
    "bn.bias": floats(0.5, 1),
    "bn.running_mean": floats(1, 2),
    "bn.running_var": floats(4, 9),
}
FREQUENCIES = floats(1, 0.1)


def folded(weight: Array, bias: Array) -> tuple[Array, Array]:
    scale = NORM["bn.weight"].astype("f8") / np.sqrt(NORM["bn.running_var"].astype("f8") + 1e-5)
    shift = (bias - NORM["bn.running_mean"]) * scale + NORM["bn.bias"]
    return (weight * scale[:, None, None]).astype(np.float32), shift.astype(np.float32)


def product(name: str, array: Array) -> str:
    return f'g (float[1,{array.shape[0]}] x) => (float[1,n] y) {{ y = MatMul(x, "{name}") }}'


def added(name: str, array: Array) -> str:
    shape = ",".join(map(str, array.shape))
    return f'g (float[{shape}] x) => (float[{shape}] y) {{ y = Add(x, "{name}") }}'


def decoded(shape: str, node: str) -> str:
    return f"g (float[1,{shape}] x) => (float[1,n] y) {{ {node} }}"


def rotary(frequencies: Array, positions: int) -> Array:
    angles = np.arange(positions)[:, None] * frequencies
    return np.cos(np.concatenate([angles, angles], axis=1)).astype(np.float32)


def changed(array: Array, value: float) -> Array:
    copy = array.copy()
    copy.reshape(-1)[-1] = value
    return copy


def pictures() -> Iterator[Picture]:
    """Yield the pictures in the order of the page."""
    yield Picture({"fc.weight": W}, {"fc.weight": W}, product("fc.weight", W))
    nines = np.full_like(W, 9)
    yield Picture({"fc.weight": W}, {"fc.weight": nines}, product("fc.weight", W), undescribed=("fc.weight",))
    yield Picture({"fc.weight": W}, {"val_9": W}, product("val_9", W))
    turned = np.ascontiguousarray(W.T)
    yield Picture({"fc.weight": W}, {"onnx::MatMul_9": turned}, product("onnx::MatMul_9", turned))
    yield Picture({"conv.bias": W[0]}, {"val_9": W[0].reshape(3, 1)}, added("val_9", W[0].reshape(3, 1)))

    # parts of a table
    for rows in ([0, 1], [3, 0, 3], [0, 1, 2, 3, 0, 1, 2, 3]):
        kept = TABLE[rows]
        yield Picture({"position.weight": TABLE}, {"val_1": kept}, added("val_1", kept), tables=True)

    # several tensors in one, and one in several
    both = np.ascontiguousarray(np.concatenate([QUERY.T, KEY.T, VALUE.T], axis=1))
    three = {"q.weight": QUERY, "k.weight": KEY, "v.weight": VALUE}
    yield Picture(three, {"packed": both}, product("packed", both))
    biases = floats(1, 2, 0, 0, 3, 4)
    yield Picture({"q.bias": biases[:2], "v.bias": biases[4:]}, {"val_2": biases}, added("val_2", biases))
    yield Picture(
        {"lstm.weight_ih_l0": GATES},
        {"W": GATES[ONNX_GATES][None]},
        "g (float[s,1,2] x) => (float[s,1,1,1] y) { y = LSTM <hidden_size=1> (x, W, R) }",
        hidden=("R",),
    )
    first, second = (np.ascontiguousarray(expert.T) for expert in EXPERTS)
    yield Picture(
        {"experts.up": EXPERTS},
        {"e0": first, "e1": second},
        "g (float[1,2] x) => (float[1,3] y) { a = MatMul(x, e0) b = MatMul(x, e1) y = Add(a, b) }",
    )

    # one tensor for several parameters, or several times
    tie = {"tok.weight": ("head.weight",)}
    yield Picture({"tok.weight": W}, {"tok.weight": W}, product("tok.weight", W), tied=tie)
    yield Picture(
        {"a.weight": ONES, "b.weight": ONES},
        {"a.weight": ONES},
        'g (float[1,3] x) => (float[1,3] y) { ["/a/Mul"] h = Mul(x, "a.weight") ["/b/Mul"] y = Mul(h, "a.weight") }',
    )
    yield Picture(
        {"fc.weight": SQUARE, "fc.bias": ZEROS},
        {"fc.weight": SQUARE},
        product("fc.weight", SQUARE),
        traced="p_fc_bias",
    )
    yield Picture(
        {"tok.weight": W},
        {"tok.weight": W, "onnx::MatMul_7": turned},
        'g (float[1,2] x) => (float[1,2] y) { h = MatMul(x, "tok.weight") y = MatMul(h, "onnx::MatMul_7") }',
        tied=tie,
    )
    yield Picture(
        {"shared.weight": W},
        {"encoder/shared.weight": W, "decoder/onnx::MatMul_9": turned},
        {"encoder": product("shared.weight", W), "decoder": product("onnx::MatMul_9", turned)},
    )

    # formulas
    yield from batch_norms()
    direction, length = floats([3, 4], [0, 5]), floats([10], [1])
    factors = length.reshape(-1) / np.linalg.norm(direction.astype("f8"), axis=1)
    weight = (direction * factors[:, None]).astype(np.float32)
    yield Picture(
        {"fc.weight_v": direction, "fc.weight_g": length},
        {"val_3": weight},
        "g (float[2,n] x) => (float[2,n] y) { y = MatMul(val_3, x) }",
        weight_norm=WeightNorm("fc.weight", "fc.weight_g", "fc.weight_v", 0, encode_values(factors)),
    )
    gain = floats(-0.25, 0, 0.5)
    yield Picture(
        {"norm.weight": gain},
        {"add_127": 1 + gain},
        "g (float[1,3] x) => (float[1,3] y) { y = SimplifiedLayerNormalization(x, add_127) }",
    )
    bias = np.arange(4, 68, 4, dtype=np.float32)
    yield Picture(
        {"q_proj.bias": bias},
        {"val_3": bias / 4, "heads": np.array([-1, 16])},
        """g (float[1,16] x, float[16,n] keys) => (float[1,n] y) {
            h = Add(x, val_3)
            query = Reshape(h, heads)
            scores = MatMul(query, keys)
            y = Softmax(scores)
        }""",
    )
    mix = floats(0.13, 0.57, 0.91)
    yield Picture(
        {"mix": mix},
        {"mix": mix, "val_4": 1 - mix},
        "g (float[3] x, float[3] w) => (float[3] y) { a = Mul(x, mix) b = Mul(w, val_4) y = Add(a, b) }",
        program=Program((traced("%rsub", 1 - mix, "1 - mix", parameters=("mix",), origins=("mix",)),)),
    )
    scale = floats(0.13, 0.57, 0.91)
    decay = -np.exp(scale)
    steps = (
        traced("%exp", np.exp(scale), "exp(decay)", parameters=("decay",), origins=("decay",), is_read=False),
        traced("%neg", decay, "-exp(decay)", parameters=("decay",), origins=("%exp",)),
    )
    yield Picture(
        {"decay": scale}, {"val_7": decay}, added("val_7", decay), program=Program(steps, ("decay",))
    )

    # other encodings
    yield from casts()
    yield from codes()

    # not in the file
    yield Picture(
        {"fc.weight": SQUARE, "pooler.weight": SQUARE + 1},
        {"fc.weight": SQUARE},
        product("fc.weight", SQUARE),
        unread=("pooler.weight",),
    )
    yield Picture(
        {"fc.weight": SQUARE, "lm_head.weight": SQUARE + 1},
        {"fc.weight": SQUARE},
        product("fc.weight", SQUARE),
    )

    # tensors that are no parameters of PyTorch's
    yield Picture({}, {"bn.running_mean": ONES}, added("bn.running_mean", ONES), {"bn.running_mean": ONES})
    anchors = np.array([[[1, 2], [2, 1]], [[2, 3], [3, 2]]], np.float32)
    stored = {
        name: (anchors[at] * 8 * 2**at).reshape(1, 2, 1, 1, 2) for at, name in enumerate(("one", "two"))
    }
    nodes = " ".join(f"{name}y = Mul({name}x, {name})" for name in stored)
    sides = [", ".join(f"float[1,2,h,w,2] {name}{side}" for name in stored) for side in "xy"]
    yield Picture({}, stored, f"g ({sides[0]}) => ({sides[1]}) {{ {nodes} }}", {"anchors": anchors})
    cosines = rotary(FREQUENCIES, 3)
    yield Picture({}, {"val_3": cosines}, added("val_3", cosines), {"rotary_emb.inv_freq": FREQUENCIES})
    levels = np.array([3, 5, 7])
    yield Picture(
        {}, {"val_3": floats(3, 5, 7)}, added("val_3", levels), {"levels": levels}, program=Program()
    )
    mask = floats([0, -1e9], [0, 0])
    yield Picture(
        {"norm.weight": W[0]},
        {"norm.weight": W[0], "val_9": ZEROS, "mask": mask},
        """g (float[2,3] x, float[2,2] s) => (float[2,3] y, float[2,2] t) {
            y = LayerNormalization(x, "norm.weight", val_9)
            t = Add(s, mask)
        }""",
    )

    # causes of an unbalanced account
    other = changed(W, 60)
    yield Picture({"fc.weight": W}, {"fc.weight": other}, product("fc.weight", other))
    yield Picture({"fc.weight": W}, {"val_1": other}, product("val_1", other))
    yield Picture(
        {"fc.weight": W},
        {"fc.weight": W, "val_9": floats(4, 9, 5)[()]},
        'g (float[1,2] x) => (float[1,3] y) { h = MatMul(x, "fc.weight") y = acme.Gate(h, val_9) }',
    )
    yield from wired()


def wired() -> Iterator[Picture]:
    """Yield pictures of PyTorch's values in a file that computes with them differently."""
    swapped = """g (float[1,3] x) => (float[1,3] y) {
        ["/first/MatMul"] h = MatMul(x, "second.weight")
        ["/second/MatMul"] y = MatMul(h, "first.weight")
    }"""
    both = {"first.weight": SQUARE, "second.weight": SQUARE + 1}
    yield Picture(both, both, swapped)
    yield Picture(
        {"fc.weight": SQUARE},
        {"fc.weight": SQUARE},
        'g (float[1,3] x) => (float[1,3] y) { h = MatMul(x, "fc.weight") y = Relu(x) }',
    )
    numbers = (np.arange(40, dtype=np.int8) * 17 % 53).reshape(4, 10)
    yield Picture(
        {"fc.weight": SQUARE},
        {"fc.weight": SQUARE, "indices": numbers},
        """g (float[4,3] x) => (float[4,3] y, float[4,10] z) {
            y = MatMul(x, "fc.weight")
            w = Cast <to=1> (indices)
            s = ReduceSum <keepdims=1> (y)
            z = Mul(s, w)
        }""",
    )
    yield Picture(
        {"a.weight": W, "b.weight": SQUARE},
        {"a.weight": W, "b.weight": SQUARE},
        'g (float[1,2] x) => (float[1,3] y) { h = MatMul(x, "a.weight") y = MatMul(h, "b.weight") }',
        undescribed=("b.weight",),
    )


def batch_norms() -> Iterator[Picture]:
    bias = floats(3, 0)
    weight, shift = folded(CONV, bias)
    statistics = {name: array for name, array in NORM.items() if "running" in name}
    own = {name: array for name, array in NORM.items() if "running" not in name}
    yield Picture(
        {"conv.weight": CONV, "conv.bias": bias, **own},
        {"conv.weight": weight, "conv.bias": shift},
        'g (float[1,3,4] x) => (float[1,2,4] y) { y = Conv(x, "conv.weight", "conv.bias") }',
        statistics,
        batch_norm=BatchNorm("bn", 1e-5, "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"),
    )


def casts() -> Iterator[Picture]:
    clamped = np.clip(HALVES, -65504, 65504).astype(np.float16)
    clamped[0, 2] = np.float16(2.0**-24)
    yield Picture({"fc.weight": HALVES}, {"fc.weight": clamped}, product("fc.weight", clamped))
    reals = floats([0.1, -2, 0.3333333])
    short = reals.astype(ml_dtypes.bfloat16)
    yield Picture({"fc.weight": reals}, {"fc.weight": short}, product("fc.weight", short))


def codes() -> Iterator[Picture]:
    scale, zero = np.array(0.01, np.float32), np.array(100, np.uint8)
    eight = np.round(REALS / scale + zero).astype(np.uint8)
    yield Picture(
        {"fc.weight": REALS},
        {"w_quantized": eight, "w_scale": scale, "w_zero_point": zero},
        decoded("2", "w = DequantizeLinear(w_quantized, w_scale, w_zero_point) y = MatMul(x, w)"),
    )
    made = quantized("w", np.ascontiguousarray(REALS.T), axis=1)
    yield Picture(
        {"fc.weight": REALS},
        made,
        decoded("3", "w = DequantizeLinear <axis=1> (w_quantized, w_scale, w_zero_point) y = MatMul(x, w)"),
    )
    four = packed("w", BLOCK)
    node = "com.microsoft.MatMulNBits <K=16, N=1, bits=4, block_size=16>"
    yield Picture({"fc.weight": BLOCK}, four, decoded("16", f"y = {node} (x, w_Q4, w_scales)"))
    kept = np.ascontiguousarray(TABLE[:2] / np.float32(7))
    yield Picture(
        {"position.weight": TABLE / np.float32(7)},
        {"val_1": kept.astype(np.float16)},
        added("val_1", kept),
        tables=True,
    )


# rendering


def manifest(picture: Picture) -> Manifest:
    """Return the picture's manifest, as a census writes it."""
    read = {} if picture.unread is None else {name: name not in picture.unread for name in picture.pytorch}
    special = table if picture.tables else convolution if picture.batch_norm else parameter
    made = []
    for name, array in picture.pytorch.items():
        make = special if array.ndim > 1 else parameter
        known = {"weightless": True} if name in picture.undescribed else {}
        made.append(make(name, array, tied=picture.tied.get(name, ()), read=read.get(name), **known))
    known = manifest_of(
        *made,
        *(buffer(name, array) for name, array in picture.buffers.items()),
        batch_norms=(picture.batch_norm,) if picture.batch_norm else (),
        weight_norms=(picture.weight_norm,) if picture.weight_norm else (),
        values={
            name: array
            for name, array in {**picture.pytorch, **picture.buffers}.items()
            if name not in picture.undescribed
        },
        trace=None if picture.unread is None else "exported-program",
    )
    return replace(known, program=picture.program)


def answer(picture: Picture, folder: Path) -> Reconciliation:
    if isinstance(picture.model, str):
        path = _save(folder, picture.model, picture.stored, picture.traced)
        return reconcile_ledger(audit_model(path), manifest(picture))
    for component, model in picture.model.items():
        prefix = f"{component}/"
        own = {n.removeprefix(prefix): a for n, a in picture.stored.items() if n.startswith(prefix)}
        _save(folder, model, own, name=f"{component}.onnx")
    return reconcile_ledger(audit_model(folder, artifact=True), manifest(picture))


def _save(
    folder: Path, model: str, stored: Mapping[str, Array], traced: str = "", name: str = "model.onnx"
) -> Path:
    proto = text_model(model, {n: array for n, array in stored.items() if array.dtype != ml_dtypes.bfloat16})
    for tensor, array in stored.items():
        if array.dtype == ml_dtypes.bfloat16:
            short = onnx.TensorProto.BFLOAT16
            proto.graph.initializer.add(
                name=tensor, dims=array.shape, data_type=short, raw_data=array.tobytes()
            )
    if traced:
        set_metadata(proto.graph.node[0], {FX_NODE: f"%linear = call_function(args = (%x, %{traced}))"})
    return save(folder, proto, name)


def draw(picture: Picture, result: Reconciliation) -> str:
    """Draw both sides beside each other, with the answer below."""
    left = _side("PyTorch", {**picture.pytorch, **picture.buffers})
    right = _side("file", {name: a for name, a in picture.stored.items() if name not in picture.hidden})
    return "\n".join([*_beside([left, right], 6), "", *_answers(result)]) + "\n"


def _side(title: str, arrays: Mapping[str, Array]) -> list[str]:
    """Return the lines of one side: matrices beside each other, and single rows below, one a line."""
    matrices = {name: array for name, array in arrays.items() if array.ndim > 1}
    rows = {name: array for name, array in arrays.items() if array.ndim < 2}
    width = max((len(_title(name, array)) for name, array in rows.items()), default=0)
    lines = _beside([_matrix(name, array) for name, array in matrices.items()], 3)
    for name, array in rows.items():
        lines.append(f"{_title(name, array):{width}}  {' '.join(_numbers(array))}")
    return [title, *lines]


def _beside(columns: list[list[str]], gap: int) -> list[str]:
    rows = itertools.zip_longest(*columns, fillvalue="")
    widths = [max(map(len, column)) + gap for column in columns]
    return [
        "".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _matrix(name: str, array: Array) -> list[str]:
    lines = [_title(name, array)]
    is_stack = array.ndim > 2 and array.shape[-1] > 1
    for part in array.reshape(-1, *array.shape[-2:]) if is_stack else [array.reshape(len(array), -1)]:
        cells = [_numbers(row, is_packed=name.endswith("_Q4")) for row in part]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += [" ".join(map(str.rjust, row, widths)) for row in cells]
        lines.append("")
    return lines[:-1]


def _title(name: str, array: Array) -> str:
    return f"{name} {'x'.join(map(str, array.shape))}".rstrip()


def _numbers(array: Array, *, is_packed: bool = False) -> list[str]:
    """Format numbers with five digits; bytes that hold several codes in hexadecimal."""
    return [f"{int(v):02x}" if is_packed else f"{float(v):.5g}" for v in array.reshape(-1)]


def _answers(result: Reconciliation) -> Iterator[str]:
    names = {settled.name for settled in result.parameters}
    for settled in result.parameters:
        chain = ", ".join(settled.chain)
        yield f"-> {settled.name}: {chain}; decided by {settled.decided_by}"
    for line in result.entries:
        if line.parameter not in names or not line.learned:  # counted tensors are listed with their parameter
            yield f"-> {_label(line.key)}: {line.line}; decided by {line.decided_by}"
    for row in result.bridge:
        if row.tensors or row.elements:
            yield f"=> {row.line}: parameters {_signed(row.parameter_delta)}, stored {_signed(row.stored_delta)}"


def _signed(count: int) -> str:
    return f"{count:+,}" if count else "0"


def _label(key: Key) -> str:
    return "/".join((*key[0], key[1]))


# the tests


@pytest.fixture
def drawn(tmp_path: Path) -> list[tuple[str, Reconciliation]]:
    found = []
    for number, picture in enumerate(pictures()):
        folder = tmp_path / str(number)
        folder.mkdir()
        result = answer(picture, folder)
        found.append((draw(picture, result), result))
    return found


def test_every_picture_shows_what_reconcile_answers(
    drawn: list[tuple[str, Reconciliation]], request: pytest.FixtureRequest
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--update-golden"):
        blocks = iter(drawn)
        text = _BLOCK.sub(lambda _: f"```text\n{next(blocks)[0]}```", text)
        PAGE.write_text(text, encoding="utf-8")

    assert _BLOCK.findall(text) == [block for block, _ in drawn]


def test_the_pictures_show_every_line(drawn: list[tuple[str, Reconciliation]]) -> None:
    shown = {line for _, result in drawn for settled in result.parameters for line in settled.chain}
    shown |= {line.line for _, result in drawn for line in result.entries}

    assert shown == set(Line)


def test_the_page_has_a_section_for_every_line() -> None:
    headings = re.findall(r"^### (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    documented = [name for heading in headings for name in re.findall(r"`([\w-]+)`", heading)]

    assert sorted(documented) == sorted(line.value for line in Line)


def test_the_page_lists_the_rules_in_the_order_in_which_they_are_tried() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert re.findall(r"^\d+\. `(\w+)`", text, re.MULTILINE) == [rule.__name__ for rule in RULES]


def test_the_pictures_of_the_page_on_counting_are_those_of_the_bridge() -> None:
    counting = (DOCS / "counting.md").read_text(encoding="utf-8")

    assert _BLOCK.findall(counting)
    assert set(_BLOCK.findall(counting)) <= set(_BLOCK.findall(PAGE.read_text(encoding="utf-8")))
