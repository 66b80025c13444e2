"""Number of calls of each local function."""

from __future__ import annotations

import onnx
import pytest
from memory import MemoryFile, read_memory
from onnx import helper

from analyzer.model.functions import Calls, count_calls


def call(name: str, domain: str = "my", **fields: object) -> onnx.NodeProto:
    node = helper.make_node(name, ["x"], ["y"], domain=domain)
    for key, value in fields.items():
        setattr(node, key, value)
    return node


def function(name: str, *nodes: onnx.NodeProto, domain: str = "my", overload: str = "") -> onnx.FunctionProto:
    return onnx.FunctionProto(name=name, domain=domain, overload=overload, node=nodes)


def counted(nodes: list[onnx.NodeProto], *functions: onnx.FunctionProto) -> tuple[Calls, ...]:
    proto = onnx.ModelProto(graph=onnx.GraphProto(node=nodes), functions=functions)
    return count_calls(read_memory(MemoryFile(proto.SerializeToString())))


def numbers(nodes: list[onnx.NodeProto], *functions: onnx.FunctionProto) -> dict[str, tuple[int, int | None]]:
    """Return (sites, calls) of each function, by name."""
    return {calls.function.name: (calls.sites, calls.calls) for calls in counted(nodes, *functions)}


def test_model_without_functions_has_no_calls():
    assert counted([call("f")]) == ()


def test_each_node_that_calls_is_a_site_and_a_call():
    assert numbers([call("f"), call("g"), call("f")], function("f"), function("g")) == {
        "f": (2, 2),
        "g": (1, 1),
    }


def test_function_that_nobody_calls_is_called_never():
    assert numbers([], function("f"), function("g", call("f"))) == {"f": (1, 0), "g": (0, 0)}


def test_calls_within_a_function_count_as_often_as_it_is_called():
    inner, outer = function("inner"), function("outer", call("inner"), call("inner"))

    assert numbers([call("outer")] * 3, inner, outer) == {"inner": (2, 6), "outer": (3, 3)}
    assert numbers([call("outer")] * 3, outer, inner) == {"inner": (2, 6), "outer": (3, 3)}


def test_bodies_of_if_and_loop_count_once_each():
    branch = onnx.GraphProto(node=[call("f"), call("f")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)

    assert numbers([node], function("f")) == {"f": (4, 4)}


def test_call_in_a_graph_within_a_function_is_the_functions():
    branch = onnx.GraphProto(node=[call("inner")])
    outer = function("outer", helper.make_node("If", ["c"], ["y"], then_branch=branch))

    assert numbers([call("outer")] * 2, outer, function("inner")) == {"outer": (2, 2), "inner": (1, 2)}


def test_training_graphs_call_too():
    proto = onnx.ModelProto(graph=onnx.GraphProto(), functions=[function("f")])
    proto.training_info.add().algorithm.node.append(call("f"))

    (calls,) = count_calls(read_memory(MemoryFile(proto.SerializeToString())))

    assert (calls.sites, calls.calls) == (1, 1)


def test_overload_is_part_of_what_is_called():
    nodes = [call("f"), call("f", overload="half"), call("f", overload="half"), call("f", overload="other")]

    found = counted(nodes, function("f"), function("f", overload="half"))

    assert [(calls.function.overload, calls.sites) for calls in found] == [("", 1), ("half", 2)]


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_default_domain_has_two_names(domain):
    found = counted([call("f", ""), call("f", "ai.onnx")], function("f", domain=domain))

    assert [calls.sites for calls in found] == [2]


def test_function_of_another_domain_is_another_function():
    assert numbers([call("f", "other")], function("f")) == {"f": (0, 0)}


def test_of_two_functions_that_are_the_same_the_first_is_called():
    assert [calls.sites for calls in counted([call("f")], function("f"), function("f"))] == [1, 0]


def test_functions_that_call_themselves_have_no_number_of_calls():
    assert numbers([call("f")], function("f", call("f"))) == {"f": (2, None)}
    assert numbers([call("f")], function("f", call("g")), function("g", call("f"))) == {
        "f": (2, None),
        "g": (1, None),
    }


def test_function_beside_a_circle_is_counted():
    found = numbers([call("f"), call("g")], function("f", call("f")), function("g"))

    assert found == {"f": (2, None), "g": (1, 1)}


def test_function_that_a_circle_calls_has_no_number_of_calls_and_is_not_recursive_itself():
    found = counted([call("f")], function("f", call("f"), call("g")), function("g"))

    assert [(calls.calls, calls.is_recursive) for calls in found] == [(None, True), (None, False)]


def test_function_that_calls_a_circle_is_not_in_it():
    found = counted([call("a")], function("a", call("b")), function("b", call("c")), function("c", call("b")))

    assert [(calls.calls, calls.is_recursive) for calls in found] == [(1, False), (None, True), (None, True)]


def test_two_circles_of_which_one_calls_the_other_are_both_recursive():
    found = counted(
        [], function("a", call("a"), call("m")), function("m", call("b")), function("b", call("b"))
    )

    assert [calls.is_recursive for calls in found] == [True, False, True]


def test_chain_of_thousands_is_counted_without_recursion():
    count = 5000
    functions = [function(f"f{i}", call(f"f{i + 1}")) for i in range(count)] + [function(f"f{count}")]

    found = counted([call("f0")], *functions)

    assert {calls.calls for calls in found} == {1}


def test_calls_that_double_at_every_step_are_a_number_and_take_no_time():
    functions = [function(f"f{i}", call(f"f{i + 1}"), call(f"f{i + 1}")) for i in range(40)]

    assert [calls.calls for calls in counted([call("f0")], *functions)] == [2**i for i in range(40)]


def test_more_calls_than_can_be_told_apart_have_no_number():
    chain = [function(f"f{i}", call(f"f{i + 1}"), call(f"f{i + 1}")) for i in range(200)]

    counts = numbers([call("f0")], *chain, function("f200"))

    assert counts["f128"] == (2, 1 << 128)
    assert [counts[f"f{i}"] for i in (129, 200)] == [(2, None), (2, None)]


def test_function_in_a_circle_is_recursive_and_what_it_calls_is_not():
    calls = counted(
        [call("f")], function("f", call("g")), function("g", call("f"), call("leaf")), function("leaf")
    )

    assert [(c.function.name, c.is_recursive) for c in calls] == [("f", True), ("g", True), ("leaf", False)]


def test_a_function_of_the_name_of_a_runtimes_operator_is_never_called():
    nodes = [call("FusedMatMul", "com.microsoft"), call("MyOwn", "com.microsoft"), call("MatMul", "")]
    functions = [
        function("FusedMatMul", domain="com.microsoft"),
        function("MyOwn", domain="com.microsoft"),
        function("MatMul", domain=""),
    ]

    assert numbers(nodes, *functions) == {"FusedMatMul": (0, 0), "MyOwn": (1, 1), "MatMul": (0, 0)}
