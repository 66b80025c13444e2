"""Changes that nodes make at run time to weights, gains, biases and known tables before an activation meets them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from models import buffer, lines_of, manifest_of, noise, parameter, parameters_of, reconcile, text_model

from analyzer.account.ledger import Severity
from analyzer.reconciliation import Reconciliation

WEIGHTS = {f"l{number}.weight": noise(6, 6, seed=number) for number in range(3)}


def run(folder: Path, change: str, modules: dict[str, str] | None) -> dict[str, str]:
    """Return the line of each weight for three layers in a row; the second one's weight goes through `change` first."""
    text = f"""g (float[2,6] x) => (float[2,6] y) {{
        h0 = Gemm <transB = 1> (x, "l0.weight") {change}
        h1 = Gemm <transB = 1> (h0, c) y = Gemm <transB = 1> (h1, "l2.weight")
    }}"""
    used = dict(WEIGHTS)
    return lines_of(
        reconcile(folder, text_model(text, used), manifest_of(*parameters_of(used), modules=modules))
    )


def plain(class_: str) -> dict[str, str]:
    return {f"l{number}": class_ for number in range(3)}


CHANGES = ('c = Neg("l1.weight")', 'c = Abs("l1.weight")', 'a = Neg("l1.weight") c = Exp(a)')


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("modules", [plain("Linear"), None], ids=["Linear", "no class known"])
def test_what_a_node_makes_of_a_linears_weight_is_another_weight(
    change: str, modules: dict[str, str] | None, tmp_path: Path
) -> None:
    lines = run(tmp_path, change, modules)

    assert lines == {"l0.weight": "identical", "l1.weight": "differing", "l2.weight": "identical"}


@pytest.mark.parametrize("change", CHANGES)
def test_a_class_of_its_own_may_compute_with_its_weight_in_any_orientation(
    change: str, tmp_path: Path
) -> None:
    assert set(run(tmp_path, change, plain("MyLinear")).values()) == {"identical"}


@pytest.mark.parametrize(
    "change",
    ['c = Identity("l1.weight")', 'a = Cast <to = 10> ("l1.weight") c = Cast <to = 1> (a)'],
    ids=["nothing", "casts"],
)
def test_what_only_moves_or_casts_a_weight_changes_nothing(change: str, tmp_path: Path) -> None:
    assert set(run(tmp_path, change, plain("Linear")).values()) == {"identical"}


@pytest.mark.parametrize("op_type", ["Identity", "Neg"])
def test_a_change_behind_thousands_of_nodes_is_reported(op_type: str, tmp_path: Path) -> None:
    before = "".join(
        f" a{at + 1} = Identity({f'a{at}' if at else chr(34) + 'l1.weight' + chr(34)})" for at in range(5000)
    )
    lines = run(tmp_path, f"{before} c = {op_type}(a5000)", None)

    assert lines["l1.weight"] == ("identical" if op_type == "Identity" else "differing")


def test_what_goes_through_more_nodes_than_are_followed_is_not_taken_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.reconciliation.meetings._MOST_STEPS", 4)
    monkeypatch.setattr("analyzer.reconciliation.meetings._STEPS_FOR_EACH", 0)
    lines = run(tmp_path, 'a = Identity("l1.weight") b = Identity(a) c = Identity(b)', None)

    assert lines == {"l0.weight": "identical", "l1.weight": "differing", "l2.weight": "differing"}


def test_a_parameter_that_is_not_described_is_not_compared(tmp_path: Path) -> None:
    text = 'g (float[2,6] x) => (float[2,6] y) { h = MatMul(x, "l0.weight") y = MatMul(h, "l1.weight") }'
    stored = {name: WEIGHTS[name] for name in ("l0.weight", "l1.weight")}
    manifest = manifest_of(
        parameter("l0.weight", stored["l0.weight"]), parameter("l1.weight", stored["l1.weight"], content=None)
    )

    result = reconcile(tmp_path, text_model(text, stored), manifest)

    assert lines_of(result) == {"l0.weight": "identical", "l1.weight": "not-compared"}
    assert not result.balanced


MOVED = {
    "turned round": 'c = Slice("l1.weight", minus, least, zero, minus)',
    "rolled": """a = Slice("l1.weight", two, six, zero) b = Slice("l1.weight", zero, two, zero)
        c = Concat <axis = 0> (a, b)""",
    "cut anew": 't = Transpose <perm = [1, 0]> ("l1.weight") c = Reshape(t, shape)',
    "a row written over another": """r = Slice("l1.weight", two, three, zero)
        c = ScatterElements <axis = 0> ("l1.weight", zeros, r)""",
    "two halves exchanged": """a, b = Split <axis = 1, num_outputs = 2> ("l1.weight")
        c = Concat <axis = 1> (b, a)""",
    "another layer's added": 'c = Add("l1.weight", "l0.weight")',
    "the larger one of two layers'": """g = Greater("l1.weight", "l0.weight")
        c = Where(g, "l1.weight", "l0.weight")""",
}
"""Nodes that change elements or move them to another place."""

KEPT = {
    "cut and joined again": """a, b = Split <axis = 1, num_outputs = 2> ("l1.weight")
        c = Concat <axis = 1> (a, b)""",
    "flat and back": 'f = Reshape("l1.weight", flat) c = Reshape(f, shape)',
    "axes put in and taken out": 'f = Reshape("l1.weight", deep) c = Reshape(f, shape)',
}
"""Nodes that return each element to its place."""

NUMBERS = {
    "minus": np.array([-1]),
    "least": np.array([-(1 << 40)]),
    "zero": np.array([0]),
    "two": np.array([2]),
    "three": np.array([3]),
    "six": np.array([6]),
    "zeros": np.zeros((1, 6), "i8"),
    "shape": np.array([6, 6]),
    "flat": np.array([-1]),
    "deep": np.array([2, 3, 1, 6]),
}


def moved(folder: Path, change: str) -> Reconciliation:
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,6] x) => (float[2,6] y) {{
        h0 = Gemm <transB = 1> (x, "l0.weight") {change}
        h1 = Gemm <transB = 1> (h0, c) y = Gemm <transB = 1> (h1, "l2.weight")
    }}"""
    manifest = manifest_of(*parameters_of(WEIGHTS), modules=plain("Linear"))
    used = {name: array for name, array in NUMBERS.items() if re.search(rf"\b{name}\b", change)}
    return reconcile(folder, text_model(text, WEIGHTS | used), manifest)


@pytest.mark.parametrize("change", MOVED)
def test_a_weight_whose_elements_arrive_in_another_order_is_another_weight(
    change: str, tmp_path: Path
) -> None:
    result = moved(tmp_path, MOVED[change])

    assert lines_of(result)["l1.weight"] == "differing"
    assert not result.balanced


@pytest.mark.parametrize("change", KEPT)
def test_a_weight_whose_elements_arrive_where_they_were_is_the_same(change: str, tmp_path: Path) -> None:
    assert moved(tmp_path, KEPT[change]).balanced


def test_rows_of_another_length_are_other_rows(tmp_path: Path) -> None:
    wide = noise(12, 6, seed=9)
    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[2,6] x) => (float[2,12] y) {
        c = Reshape("l.weight", shape) y = MatMul(x, c)
    }"""
    manifest = manifest_of(*parameters_of({"l.weight": wide}), modules={"l": "Linear"})

    result = reconcile(tmp_path, text_model(text, {"l.weight": wide, "shape": np.array([6, 12])}), manifest)

    assert not result.balanced


# Gains, biases and statistics

GAINS = {
    f"n{number}.{leaf}": noise(6, seed=10 * number + place)
    for number in range(3)
    for place, leaf in enumerate(("weight", "bias"))
}


def normed(folder: Path, change: str, modules: dict[str, str] | None, leaf: str = "weight") -> Reconciliation:
    """Reconcile three norms in a row; the second one's gain or bias goes through `change` first, from `v` to `c`."""
    weight, bias = ("c", '"n1.bias"') if leaf == "weight" else ('"n1.weight"', "c")
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,6] x) => (float[2,6] y) {{
        h0 = LayerNormalization (x, "n0.weight", "n0.bias")
        {change.replace("v", f'"n1.{leaf}"', 1)}
        h1 = LayerNormalization (h0, {weight}, {bias})
        y = LayerNormalization (h1, "n2.weight", "n2.bias")
    }}"""
    manifest = manifest_of(*parameters_of(GAINS), modules=modules)
    used = {name: array for name, array in NUMBERS.items() if re.search(rf"\b{name}\b", change)}
    return reconcile(folder, text_model(text, GAINS | used), manifest)


VECTORS = {
    "turned round": "c = Slice(v, minus, least, zero, minus)",
    "rolled": "i = Identity(v) a = Slice(i, two, six, zero) b = Slice(i, zero, two, zero) c = Concat <axis = 0> (a, b)",
    "cut anew": "a = Reshape(v, halves) t = Transpose <perm = [1, 0]> (a) c = Reshape(t, flat)",
    "its first for all": "a = Slice(v, zero, one, zero) c = Expand(a, six)",
    "gathered in another order": "c = Gather(v, order)",
    "the negative of it": "c = Neg(v)",
    "no less than a bound": "c = Clip(v, floor)",
    "another norm's added": """c = Add(v, "n0.weight")""",
}
NUMBERS |= {
    "halves": np.array([2, 3]),
    "one": np.array([1]),
    "order": np.array([1, 0, 2, 3, 4, 5]),
    "floor": np.array(0, "f4"),
}


@pytest.mark.parametrize("change", VECTORS)
@pytest.mark.parametrize("leaf", ["weight", "bias"])
@pytest.mark.parametrize("has_classes", [True, False], ids=["LayerNorm", "no class known"])
def test_a_gain_or_bias_that_a_node_changes_is_another(
    change: str, leaf: str, has_classes: bool, tmp_path: Path
) -> None:
    modules = {f"n{number}": "LayerNorm" for number in range(3)} if has_classes else None

    result = normed(tmp_path, VECTORS[change], modules, leaf)

    assert lines_of(result)[f"n1.{leaf}"] == "differing"
    assert any("them before they are used" in finding.message for finding in result.findings)
    assert not result.balanced


@pytest.mark.parametrize(
    "change", ["a = Unsqueeze(v, zero) c = Squeeze(a, zero)", "a = Cast <to = 11> (v) c = Cast <to = 1> (a)"]
)
def test_a_gain_that_is_moved_and_comes_back_is_the_same(change: str, tmp_path: Path) -> None:
    assert normed(tmp_path, change, {f"n{number}": "LayerNorm" for number in range(3)}).balanced


@pytest.mark.parametrize("modules", [{f"n{number}": "GemmaRMSNorm" for number in range(3)}, None])
def test_norms_that_all_add_1_to_their_gain_do_so_in_pytorch(
    modules: dict[str, str] | None, tmp_path: Path
) -> None:
    gains = {name: array for name, array in GAINS.items() if name.endswith("weight")}
    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[2,6] x) => (float[2,6] y) {
        c0 = Add("n0.weight", one) h0 = LayerNormalization (x, c0)
        c1 = Add("n1.weight", one) h1 = LayerNormalization (h0, c1)
        c2 = Add("n2.weight", one) y = LayerNormalization (h1, c2)
    }"""

    result = reconcile(
        tmp_path,
        text_model(text, gains | {"one": np.ones(1, "f4")}),
        manifest_of(*parameters_of(gains), modules=modules),
    )

    assert result.balanced


def test_the_one_element_of_a_bias_may_come_as_a_scalar(tmp_path: Path) -> None:
    text = """g (float[2,4] x) => (float[2,4] y) {
        zero = Constant <value_int = 0> () b = Gather("l.bias", zero) h = MatMul(x, "l.weight") y = Add(h, b)
    }"""
    weights = {"l.bias": noise(1), "l.weight": noise(4, 4)}
    lines = lines_of(reconcile(tmp_path, text_model(text, weights), manifest_of(*parameters_of(weights))))

    assert lines == {"l.bias": "identical", "l.weight": "identical"}


def test_a_bias_is_added_to_a_product_of_stored_tensors_as_it_is(tmp_path: Path) -> None:
    """A position table that goes through a layer, as DeBERTa's does, depends on no input."""
    stored = {"table": noise(4, 6, seed=1), "l.weight": noise(6, 6, seed=2), "l.bias": noise(6, seed=3)}
    text = """g (float[4,6] x) => (float[4,6] y) {
        w = Transpose <perm = [1, 0]> ("l.weight") t = MatMul("table", w) p = Add(t, "l.bias") y = Mul(x, p)
    }"""
    manifest = manifest_of(*parameters_of(stored), modules={"": "Net", "l": "Linear"})

    assert reconcile(tmp_path, text_model(text, stored), manifest).balanced


FREQUENCIES = (1e4 ** -(np.arange(6) / 6)).astype("f4")


def turning(folder: Path, change: str) -> Reconciliation:
    """Reconcile angles from frequencies that go through `change` first, from `f` to `c`."""
    stored = {"l.weight": noise(6, 6, seed=2)}
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,1] x) => (float[2,6] y) {{
        {change.replace("f", '"r.inv_freq"', 1)} a = Mul(x, c) s = Sin(a) y = Gemm <transB = 1> (s, "l.weight")
    }}"""
    manifest = manifest_of(
        *parameters_of(stored), buffer("r.inv_freq", FREQUENCIES), modules={"l": "Linear", "r": "Rotary"}
    )
    used = {name: array for name, array in NUMBERS.items() if re.search(rf"\b{name}\b", change)}
    return reconcile(folder, text_model(text, stored | {"r.inv_freq": FREQUENCIES} | used), manifest)


@pytest.mark.parametrize(
    "change",
    [
        "c = Slice(f, minus, least, zero, minus)",
        "c = Tanh(f)",
        "c = Neg(f)",
        "c = Clip(f, hundredth)",
        "a0 = Reshape(f, halves) t = Transpose <perm = [1, 0]> (a0) c = Reshape(t, flat)",
    ],
)
def test_frequencies_that_a_node_changes_are_others(change: str, tmp_path: Path) -> None:
    assert not turning(tmp_path, change).balanced


@pytest.mark.parametrize("change", ["c = Identity(f)", "c = Mul(f, half)", "c = Unsqueeze(f, zero)"])
def test_frequencies_may_be_scaled_as_a_whole(change: str, tmp_path: Path) -> None:
    """RoPE's linear scaling divides all positions by one factor."""
    assert turning(tmp_path, change).balanced


NUMBERS |= {"hundredth": np.array(0.01, "f4"), "half": np.array(0.5, "f4")}


@pytest.mark.parametrize(("gain", "is_same"), [("c", False), ("d", True)])
def test_of_an_if_each_output_is_what_its_own_branch_gives(gain: str, is_same: bool, tmp_path: Path) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,6] x, bool t) => (float[2,6] y) {{
        c, d = If(t) <
            then_branch = a () => (float[6] p, float[6] q) {{ p = Neg("n0.weight") q = Identity("n0.weight") }},
            else_branch = b () => (float[6] r, float[6] s) {{ r = Neg("n0.weight") s = Identity("n0.weight") }}
        >
        y = LayerNormalization (x, {gain}, "n0.bias")
    }}"""
    stored = {name: array for name, array in GAINS.items() if name.startswith("n0")}
    manifest = manifest_of(*parameters_of(stored), modules={"n0": "LayerNorm"})

    assert reconcile(tmp_path, text_model(text, stored), manifest).balanced is is_same


# the same change to all weights or biases

ALIKE = ("Abs", "Cos", "Neg")
"""Operators that do not preserve the order of numbers around 0."""
FORMULAS = ("Exp", "Round", "Sigmoid", "Sign", "Softmax", "Tanh")
"""Order-preserving operators that PyTorch's own modules apply to weights."""


def changed_alike(folder: Path, change: str, leaf: str = "weight") -> Reconciliation:
    """Reconcile two layers, whose weights or biases all go through `change` (`v` to `c`), with a state dict."""
    weights = {
        f"l{number}.{name}": noise(*shape, seed=10 * number + len(name))
        for number, shape in enumerate([(8, 6), (6, 8)])
        for name, shape in (("weight", shape), ("bias", shape[:1]))
    }
    lines, state = [], "x"
    for number in range(2):
        names = {name: f'"l{number}.{name}"' for name in ("weight", "bias")}
        made = re.sub(r"\b([a-z])\b(?=[ ,()=])", rf"\g<1>{number}", change).replace(f"v{number}", names[leaf])
        names[leaf] = f"c{number}"
        lines.append(f"{made} h{number} = Gemm <transB = 1> ({state}, {names['weight']}, {names['bias']})")
        state = f"h{number}"
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,6] x) => (float[2,6] h1) {{ {" ".join(lines)} }}"""
    used = {name: array for name, array in NUMBERS.items() if re.search(rf"\b{name}\b", change)}
    return reconcile(folder, text_model(text, weights | used), manifest_of(*parameters_of(weights)))


@pytest.mark.parametrize("leaf", ["weight", "bias"])
@pytest.mark.parametrize(
    "change",
    [
        *(f"c = {operator}(v)" for operator in ALIKE),
        "c = Slice(v, minus, least, zero, minus)",
        "a = Slice(v, zero, one, zero) s = Shape(v) c = Expand(a, s)",
        "a = ReduceMean <keepdims = 1> (v) s = Shape(v) c = Expand(a, s)",
    ],
)
def test_what_is_no_formula_is_reported_though_all_of_a_kind_go_through_it(
    change: str, leaf: str, tmp_path: Path
) -> None:
    result = changed_alike(tmp_path, change, leaf)

    assert {name: line for name, line in lines_of(result).items() if name.endswith(leaf)} == {
        f"l{number}.{leaf}": "differing" for number in range(2)
    }
    assert result.compared["none"] == 0  # the values are PyTorch's, and were compared


@pytest.mark.parametrize("leaf", ["weight", "bias"])
@pytest.mark.parametrize("operator", FORMULAS)
def test_a_formula_that_all_of_a_kind_go_through_may_be_pytorchs_and_is_reported(
    operator: str, leaf: str, tmp_path: Path
) -> None:
    result = changed_alike(tmp_path, f"c = {operator}(v)", leaf)

    assert result.balanced
    (finding,) = [each for each in result.findings if each.id == "changed-alike"]
    assert finding.severity is Severity.WARNING
    assert finding.message == (
        f"2 parameters are changed by {operator} before they are used; "
        "it is unknown whether PyTorch does the same"
    )
    assert finding.subjects == (f"l0.{leaf}", f"l1.{leaf}")


def test_codes_that_are_all_zero_are_not_what_was_rounded(tmp_path: Path) -> None:
    """All codes round to zero at the larger scale, and zeros point in no direction."""
    weights = {"l.weight": noise(4, 6), "l.bias": 0.3 * np.tanh(noise(4))}
    text = """g (float[2,6] x) => (float[2,4] y) {
        q = QuantizeLinear("l.bias", scale, point) c = DequantizeLinear(q, scale, point)
        y = Gemm <transB = 1> (x, "l.weight", c)
    }"""
    for scale, line in ((1.0, "differing"), (0.003, "identical")):
        stored = weights | {"scale": np.array(scale, "f4"), "point": np.array(0, "i1")}
        folder = tmp_path / line
        folder.mkdir()

        lines = lines_of(reconcile(folder, text_model(text, stored), manifest_of(*parameters_of(weights))))

        assert lines["l.bias"] == line


@pytest.mark.parametrize(
    ("change", "line", "severities"),
    [
        ("c = Exp(v)", "identical", [Severity.NOTE]),
        ("c = Neg(v)", "identical", [Severity.NOTE]),
        ("c = Slice(v, minus, least, zero, minus)", "differing", []),
        ("c = Unsqueeze(v, zero)", "identical", []),
    ],
)
def test_a_vector_of_another_name_may_be_computed_with_and_not_rearranged(
    change: str, line: str, severities: list[Severity], tmp_path: Path
) -> None:
    weights = {"scale": noise(6)}
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,6] x) => (float[2,6] y) {{
        {change.replace("v", "scale")} y = Mul(x, c)
    }}"""
    used = {name: array for name, array in NUMBERS.items() if re.search(rf"\b{name}\b", change)}

    result = reconcile(tmp_path, text_model(text, weights | used), manifest_of(*parameters_of(weights)))

    assert lines_of(result)["scale"] == line
    assert [each.severity for each in result.findings if each.id == "changed-alike"] == severities


CUTS = """zero = Constant <value_int = 0> () one = Constant <value_int = 1> () three = Constant <value_int = 3> ()
    parts = SplitToSequence <axis = 0> ("in_proj_weight", three)"""


@pytest.mark.parametrize(
    ("parts", "is_balanced", "finding_ids"),
    [
        ("a = SequenceAt(parts, zero) b = SequenceAt(parts, one)", True, []),
        (
            "r = SequenceAt(parts, zero) a = Gather(r, order) b = SequenceAt(parts, one)",
            True,
            ["changed-alike"],
        ),
        ("r = SequenceAt(parts, zero) a = Neg(r) b = SequenceAt(parts, one)", False, ["differing"]),
    ],
    ids=["cut", "cut, and in another order", "cut, and negated"],
)
def test_parts_of_a_sequence_are_followed(
    parts: str, is_balanced: bool, finding_ids: list[str], tmp_path: Path
) -> None:
    """Exporters cut the packed weights of `MultiheadAttention` in this way."""
    packed = noise(6, 5)
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,5] x) => (float[2,3] y) {{
        {CUTS} {parts} p = Gemm <transB = 1> (x, a) q = Gemm <transB = 1> (x, b) y = Add(p, q)
    }}"""
    stored = {"in_proj_weight": packed, **({"order": np.array([2, 0, 1])} if "order" in parts else {})}
    manifest = manifest_of(*parameters_of({"in_proj_weight": packed}))

    result = reconcile(tmp_path, text_model(text, stored), manifest)

    assert result.balanced is is_balanced
    assert [finding.id for finding in result.findings] == finding_ids
