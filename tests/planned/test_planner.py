"""The replay of onnxruntime's planner, over abstract values."""

from __future__ import annotations

import pytest

from analyzer.cost.memory.order import default_order, priority_order
from analyzer.cost.memory.planner import live_nbytes, peak_at, plan_buffers
from analyzer.cost.memory.steps import Program, Reuses, Step, Value

REUSES = Reuses({("", "Reshape"): ((0, 0),)}, {("", "Relu"): ((0, 0),)})
ALIKE = Value(4, ("n", 8))


def steps(*lines: str) -> tuple[Step, ...]:
    """Parse `Add a b -> c` as a step."""
    made = []
    for line in lines:
        left, right = line.split(" -> ")
        op_type, *inputs = left.split()
        made.append(Step(op_type, "", tuple(inputs), tuple(right.split())))
    return tuple(made)


def program(*lines: str, outputs: str = "y", **values: Value) -> Program:
    made = steps(*lines)
    names = {name for step in made for name in (*step.inputs, *step.outputs)}
    typed = {name: values.get(name, ALIKE) for name in names}
    return Program(made, typed, ("x",), frozenset({"w"}), tuple(outputs.split()))


def owners(planned: Program) -> list[tuple[str, ...]]:
    order = default_order(planned.steps)
    return [buffer.tenants for buffer in plan_buffers(planned, order, REUSES).buffers]


def test_a_dead_buffer_goes_to_the_next_value_of_its_shape() -> None:
    assert owners(program("Sin x -> a", "Sin a -> b", "Sin b -> c", "Sin c -> y")) == [
        ("a", "c"),
        ("b",),
        ("y",),
    ]


def test_the_last_freed_is_taken_first() -> None:
    planned = program("Sin x -> a", "Sin x -> b", "Add a b -> c", "Sin c -> d", "Sin d -> y")
    assert ("b", "d") in owners(planned)


@pytest.mark.parametrize(
    "other", [Value(8, ("n", 8)), Value(4, ("n", 9)), Value(4, ("m", 8)), Value(4, (None, 8)), Value(4, None)]
)
def test_nothing_is_taken_of_another_size_or_of_one_that_nobody_knows(other: Value) -> None:
    planned = program("Sin x -> a", "Sin a -> b", "Sin b -> c", "Sin c -> y", c=other)
    assert owners(planned) == [("a",), ("b",), ("c",), ("y",)]


def test_an_axis_that_nobody_knows_is_not_even_equal_to_itself() -> None:
    unknown = Value(4, (None, 8))
    planned = program("Sin x -> a", "Sin a -> b", "Sin b -> c", "Sin c -> y", a=unknown, b=unknown, c=unknown)
    assert owners(planned) == [("a",), ("b",), ("c",), ("y",)]


def test_scalars_and_strings_take_nothing() -> None:
    for value in (Value(4, ()), Value(32, ("n", 8), is_string=True)):
        planned = program("Sin x -> a", "Sin a -> b", "Sin b -> c", "Sin c -> y", a=value, b=value, c=value)
        assert len(owners(planned)) == 4


def test_an_alias_lives_in_its_input_whoever_else_reads_that() -> None:
    flat = Value(4, ("n8",))
    planned = program("Sin x -> a", "Reshape a -> b", "Add a b -> y", b=flat)
    assert owners(planned) == [("a", "b"), ("y",)]


def test_an_alias_of_an_input_of_the_graph_allocates_nothing() -> None:
    assert owners(program("Reshape x -> a", "Sin a -> y")) == [("y",)]


def test_a_kernel_works_in_place_only_where_nobody_else_reads() -> None:
    assert owners(program("Sin x -> a", "Relu a -> b", "Sin b -> y")) == [("a", "b"), ("y",)]
    assert owners(program("Sin x -> a", "Relu a -> b", "Add a b -> y")) == [("a",), ("b",), ("y",)]
    assert owners(program("Relu x -> a", "Sin a -> y")) == [("a",), ("y",)]


def test_outputs_of_the_graph_are_allocated_and_never_freed() -> None:
    planned = program("Sin x -> a", "Relu a -> y", "Sin y -> z", outputs="y z")
    plan = plan_buffers(planned, default_order(planned.steps), REUSES)
    assert [(buffer.tenants, buffer.last) for buffer in plan.buffers] == [
        (("a",), 1),
        (("y",), None),
        (("z",), None),
    ]


def test_an_output_that_nobody_reads_takes_nothing_and_is_not_given_back_until_somebody_takes_it() -> None:
    planned = program("Sin x -> a", "Sin a -> b", "Twice b -> c d", "Sin c -> e", "Sin e -> y")
    plan = plan_buffers(planned, default_order(planned.steps), REUSES)
    lives = {buffer.owner: buffer for buffer in plan.buffers}
    assert lives["d"].tenants == ("d", "e") or lives["d"].last is None
    assert "d" in lives  # requested though a was free


def test_a_reader_in_a_nested_graph_keeps_a_value() -> None:
    inner = Step("If", "", ("x",), ("c",), implicit=("a",))
    made = (*steps("Sin x -> a", "Sin x -> b"), inner, *steps("Add b c -> y"))
    values = dict.fromkeys("xabcy", ALIKE)
    planned = Program(made, values, ("x",), frozenset(), ("y",))
    assert owners(planned) == [("a", "b"), ("c",), ("y",)]  # a is free after the If: too late for c


def test_live_bytes_are_of_first_owners_from_first_to_last_reader() -> None:
    planned = program("Sin x -> a", "Sin a -> b", "Sin b -> c", "Sin c -> y")
    plan = plan_buffers(planned, default_order(planned.steps), REUSES)
    lives = live_nbytes(plan, {"a": 10, "b": 100, "y": 1})
    assert lives == (10, 110, 110, 11)
    assert peak_at(lives) == 1
    assert peak_at(()) is None


def test_the_default_order_goes_depth_first_from_the_last_end() -> None:
    made = steps("Sin x -> a", "Sin x -> b", "Sin a -> c", "Sin b -> d")
    assert default_order(made) == (1, 3, 0, 2)


def test_the_order_by_priority_takes_shapes_first() -> None:
    made = steps("Sin x -> a", "Shape x -> s", "Sin a -> y")
    assert priority_order(made) == (1, 0, 2)
    assert default_order(made) == (0, 2, 1)
