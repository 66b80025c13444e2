"""Stages: the resolutions of a convolutional trunk, found without names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import run_here
from models import audit, ramp, text_model

from analyzer.account.group import group_by
from analyzer.account.group.keys import choose_key

SIDES = {
    "w0": ramp(4, 3, 3, 3),
    "w1": ramp(8, 4, 3, 3, start=9),
    "w2": ramp(8, 8, 3, 3, start=5),
    "w3": ramp(8, 10),
}
TRUNK = """
    a = Conv<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(x, w0)
    b = Relu(a)
    c = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(b, w1)
    d = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(c)
    e = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(d, w2)
    f = GlobalAveragePool(e)
    g = Flatten(f)
    y = MatMul(g, w3)
"""


def made(folder: Path, body: str, weights: dict[str, object], size: str = "1,3,32,64", out: str = "1,10"):
    used = {name: array for name, array in weights.items() if re.search(rf"\b{name}\b", body)}
    return audit(folder, text_model(f"g (float[{size}] x) => (float[{out}] y) {{ {body} }}", used))


def stages(ledger) -> dict[str, int]:
    return {
        row.name: row.parameters for row in sorted(group_by(ledger, "stage").groups, key=lambda g: g.first)
    }


def test_stages_are_the_resolutions_of_the_trunk_in_the_order_of_the_computation(tmp_path):
    ledger = made(tmp_path, TRUNK, SIDES)

    assert ledger.stages.names == ("16x32", "8x16", "head")
    assert stages(ledger) == {"16x32": 108 + 288, "8x16": 576, "head": 80}


def test_input_of_any_size_gives_the_part_that_a_resolution_is_of_it(tmp_path):
    ledger = made(tmp_path, TRUNK, SIDES, "N,3,H,W", "N,10")

    assert ledger.stages.names == ("1/2", "1/4", "head")


def test_kernel_shape_without_an_attribute_is_that_of_the_weight(tmp_path):
    body = "a = Conv(x, w0) b = Conv<strides=[2,2]>(a, w1) y = Conv(b, w2)"

    ledger = made(tmp_path, body, SIDES, "1,3,16,16", "1,8,4,4")

    assert ledger.stages.names == ("14x14", "4x4")


def test_what_is_pooled_and_goes_back_is_of_the_stage_that_it_scales(tmp_path):
    body = """
        a = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w0)
        p = GlobalAveragePool(a)
        q = Conv<kernel_shape=[1, 1]>(p, squeeze)
        r = Sigmoid(q)
        s = Mul(a, r)
        y = Conv<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(s, w1)
    """

    ledger = made(tmp_path, body, {**SIDES, "squeeze": ramp(4, 4, 1, 1)}, "1,3,8,8", "1,8,4,4")

    assert stages(ledger) == {"8x8": 108 + 16, "4x4": 288}


def test_what_was_enlarged_is_a_stage_of_its_own(tmp_path):
    body = """
        a = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w0)
        b = Conv<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(a, w1)
        c = Resize(b, , scales)
        y = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(c, w2)
    """
    weights = {**SIDES, "scales": ramp(4) * 0 + [1, 1, 2, 2]}
    weights["scales"] = weights["scales"].astype("float32")

    ledger = made(tmp_path, body, weights, "1,3,8,8", "1,8,8,8")

    assert ledger.stages.names == ("8x8", "4x4", "8x8 up")


def test_sizes_are_followed_through_a_shuffle_of_channels(tmp_path):
    body = """
        a = Conv<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(x, w0)
        b = Reshape(a, five)
        c = Transpose<perm=[1, 0, 2, 3, 4]>(b)
        d = Gather<axis=0>(c, zero)
        y = Conv<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(d, w4)
    """
    text = f"""g (float[1,3,16,16] x) => (float[1,8,4,4] y)
        <int64[5] five = {{1, 2, 2, 8, 8}}, int64 zero = {{0}}> {{ {body} }}"""

    ledger = audit(tmp_path, text_model(text, {"w0": SIDES["w0"], "w4": ramp(8, 2, 3, 3)}))

    assert ledger.stages.names == ("8x8", "4x4")


def test_model_without_convolutions_has_no_stages(tmp_path):
    ledger = made(tmp_path, "y = MatMul(x, w)", {"w": ramp(4, 10)}, "1,4", "1,10")

    assert ledger.stages is None
    assert {group.name: group.parameters for group in group_by(ledger, "stage").groups} == {"[no stage]": 40}


@pytest.mark.parametrize(
    "wrong",
    ["strides=[0, 0]", "strides=[9223372036854775807, 2]", "strides=[-1, 1]", "pads=[1]", "dilations=[0, 0]"],
)
def test_settings_that_make_no_sense_are_ignored_and_break_nothing(tmp_path, wrong):
    body = f"a = Conv<kernel_shape=[3, 3], {wrong}>(x, w0) y = Conv<kernel_shape=[3, 3], {wrong}>(a, w1)"

    assert sum(stages(made(tmp_path, body, SIDES, "1,3,8,8", "1,8,4,4")).values()) == 108 + 288


# the default key


def test_stage_is_chosen_where_names_and_blocks_show_nothing(tmp_path):
    assert choose_key(made(tmp_path, TRUNK, SIDES)) == "stage"


def test_the_head_is_the_last_row_of_the_work_also_where_it_begins_first(tmp_path):
    body = "p = Neg(w3) " + TRUNK.replace("MatMul(g, w3)", "MatMul(g, p)")
    path = made(tmp_path, body, SIDES).model.path
    lines = run_here("cost", path, "--by", "stage").stdout.splitlines()

    table = lines[next(place for place, line in enumerate(lines) if line.startswith("stage")) :]
    assert [line.split()[0] for line in table[1:5]] == ["16x32", "8x16", "head", "total"]


def test_operator_is_chosen_where_all_is_at_one_resolution(tmp_path):
    body = """
        a = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w0)
        b = ConvTranspose<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(a, w5)
        y = PRelu(b, slope)
    """
    weights = {"w0": SIDES["w0"], "w5": ramp(4, 8, 3, 3), "slope": ramp(8, 1, 1, start=3)}

    ledger = made(tmp_path, body, weights, "1,3,8,8", "1,8,8,8")

    assert choose_key(ledger) == "op"
    assert {group.name: group.parameters for group in group_by(ledger).groups} == {
        "Conv": 108,
        "ConvTranspose": 288,
        "PRelu": 8,
    }
