"""Lines that shapes, roles and order alone decide, where values are not compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import (
    bridge_of,
    buffer,
    lines_of,
    manifest_of,
    outs,
    parameter,
    parameters_of,
    ramp,
    reconcile,
    text_model,
)

from analyzer.content import Array
from analyzer.reconciliation import Reconciliation


def run(
    tmp_path: Any, known: dict[str, Array], *stored: Array, read: str = "MatMul(x, {})"
) -> Reconciliation:
    """Matrices under names of the file's own, in a file without scopes."""
    nodes = " ".join(f"y{i} = {read.format(f'v{i}')}" for i in range(len(stored)))
    proto = text_model(
        f"g (float[1] x) => ({outs(len(stored))}) {{ {nodes} }}",
        {f"v{i}": array for i, array in enumerate(stored)},
    )
    return reconcile(tmp_path, proto, manifest_of(*parameters_of(known)), "none")


@pytest.mark.parametrize(
    ("stored", "line"), [((2, 3), "renamed"), ((3, 2), "transposed"), ((2, 1, 3), "reshaped")]
)
def test_the_one_matrix_of_a_shape_is_the_parameter_of_that_shape(tmp_path, stored, line):
    result = run(tmp_path, {"fc.weight": ramp(2, 3)}, ramp(*stored))

    assert bridge_of(result) == {line: (1, 6, 0, 0)}
    assert result.parameters[0].decided_by == "structure:shape"
    assert result.parameters[0].compared == "none"
    assert len(result.parameters[0].pieces) == 1


def test_of_several_of_a_shape_each_has_one_in_order(tmp_path):
    known = {"a.weight": ramp(2, 3), "b.weight": ramp(2, 3)}

    result = run(tmp_path, known, ramp(2, 3), ramp(2, 3, start=9))

    assert [line.entries for line in result.parameters] == [(((), "v0"),), (((), "v1"),)]


def test_more_matrices_than_parameters_of_a_shape_leave_a_choice_and_are_nobodys(tmp_path):
    result = run(tmp_path, {"fc.weight": ramp(2, 3)}, ramp(2, 3), ramp(2, 3, start=9))

    assert bridge_of(result) == {"missing": (1, 6, -6, -6), "unexpected": (2, 12, 12, 12)}


def test_what_is_learned_goes_before_what_has_no_role(tmp_path):
    proto = text_model(
        "g (float[3] x) => (float[3] y) { h = Relu(u) y = MatMul(x, v) }",
        {"u": ramp(2, 3), "v": ramp(2, 3, start=9)},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", ramp(2, 3))), "none")

    assert result.parameters[0].entries == (((), "v"),)


@pytest.mark.parametrize("stored", [ramp(8, 5), ramp(5, 8), ramp(8, 1, 5)])
def test_neighbours_of_one_module_fill_what_was_packed(tmp_path, stored):
    known = {"attn.q.weight": ramp(2, 5), "attn.k.weight": ramp(3, 5), "attn.v.weight": ramp(3, 5)}

    result = run(tmp_path, known, stored)

    assert bridge_of(result) == {"concatenated": (3, 40, 0, 0)}
    assert {line.decided_by for line in result.parameters} == {"structure:shape-sum"}


def test_parameters_of_several_modules_fill_what_was_packed_only_together(tmp_path):
    known = {"a.x.weight": ramp(2, 5), "b.x.weight": ramp(4, 5), "c.x.weight": ramp(6, 5)}

    assert lines_of(run(tmp_path, known, ramp(7, 5))) == dict.fromkeys(known, "missing")
    assert lines_of(run(tmp_path, known, ramp(12, 5))) == dict.fromkeys(known, "concatenated")
    two_of_three = run(tmp_path, known, ramp(10, 5))
    assert lines_of(two_of_three) == dict.fromkeys(known, "missing")


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 2, 4, 5)])
def test_a_matrix_for_each_expert_is_a_piece_of_what_pytorch_stacks(tmp_path, shape):
    result = run(tmp_path, {"experts.weight": ramp(*shape)}, *(ramp(*shape[1:], start=i) for i in range(3)))

    assert bridge_of(result) == {"sliced": (1, np.prod(shape), 0, 0)}
    assert result.parameters[0].decided_by == "structure:shape-pieces"
    assert [name for _, name in result.parameters[0].entries] == ["v0", "v1", "v2"]


def test_fewer_matrices_than_experts_are_unexpected(tmp_path):
    result = run(tmp_path, {"experts.weight": ramp(3, 4, 5)}, ramp(4, 5), ramp(4, 5, start=1))

    assert lines_of(result) == {"experts.weight": "missing"}


def test_nameless_state_of_a_buffers_shape_is_that_buffer(tmp_path):
    proto = text_model("g (float[3] x) => (float[3] y) { y = Sub(x, v) }", {"v": ramp(3)})

    result = reconcile(tmp_path, proto, manifest_of(buffer("norm.shift", ramp(3))), "none")

    assert bridge_of(result) == {"buffer": (1, 3, 0, 3)}
    assert (result.entries[0].parameter, result.entries[0].decided_by) == ("norm.shift", "structure:shape")
