"""Findings in a readable file, each with its severity, figure and subjects."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from encoding import block, integer
from models import audit, external, finding_ids, ramp, raw, set_metadata, text_model
from onnx import TensorProto, helper, numpy_helper

import analyzer.account.findings
from analyzer.account.audit import audit_model
from analyzer.account.findings.rules import NOTED
from analyzer.account.group.patterns import find_overlap, group_by_patterns, parse_patterns
from analyzer.account.ledger import Finding, Ledger, Severity
from analyzer.model import DEFAULT_DOMAIN, ONNX_DOMAINS, label
from analyzer.read.book import NODE_METADATA, UNKNOWN
from analyzer.reports import Inspection
from analyzer.text import format_many

LINEAR = "g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }"
NOTE, WARNING, ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR


def finding(ledger: Ledger, wanted: str) -> Finding:
    (found,) = [f for f in ledger.findings if f.id == wanted]
    return found


def linear(*initializers: onnx.TensorProto) -> onnx.ModelProto:
    proto = text_model(LINEAR, {"w": ramp(3, 2)})
    proto.graph.initializer.extend(initializers)
    return proto


def describe_finding(
    folder: Path, proto: onnx.ModelProto | bytes, wanted: str
) -> tuple[Severity, str, tuple[str, ...]]:
    found = finding(audit(folder, proto), wanted)
    return found.severity, found.message, found.subjects


def test_sound_model_has_no_findings(tmp_path):
    assert audit(tmp_path, linear()).findings == ()


def test_findings_are_sorted_and_subjects_too(tmp_path):
    weights = {name: ramp(2) for name in ("z", "a", "m")}

    ledger = audit(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }", weights))

    assert len(ledger.findings) > 1
    assert finding_ids(ledger) == sorted(finding_ids(ledger))
    assert finding(ledger, "unused-initializer").subjects == ("a", "m", "z")


def test_label_names_the_graph_of_what_is_not_in_the_main_one():
    assert label(((), "w")) == "w"
    assert label((("Loop_2.body", "If_0.then_branch"), "w")) == "Loop_2.body/If_0.then_branch/w"


def test_every_id_of_the_findings_has_a_test_here():
    """Ids are literals in the rules, and this file names each."""
    rules = Path(analyzer.account.findings.__file__).parent
    sources = [
        path.read_text(encoding="utf-8")
        for path in (*rules.glob("*.py"), rules.parent / "group" / "patterns.py")
    ]
    ids = {*NOTED, *re.findall(r'Finding\(\s*"([a-z0-9-]+)"', "".join(sources))}
    ids |= set(re.findall(r'^\s+"([a-z0-9]+(?:-[a-z0-9]+)+)",$', "".join(sources), re.MULTILINE))
    ids |= set(re.findall(r'\(\w+(?:\.\w+)*, "([a-z-]+)", ', "".join(sources)))

    here = Path(__file__).read_text(encoding="utf-8")

    assert len(ids) > 30
    assert {name for name in ids if f'"{name}"' not in here} == set(), "a test here has to find each"


# nothing to count


def test_model_of_nothing_is_empty(tmp_path):
    ledger = audit(tmp_path, text_model("g (float[1] x) => (float[1] x) { }"))

    assert ledger.findings == (Finding("empty-model", WARNING, "no nodes and no stored tensors"),)


def test_model_without_parameters_is_weightless(tmp_path):
    proto = text_model("g (float[1] x) => (float[1] y) { h = Relu(x) y = Relu(h) }")

    assert describe_finding(tmp_path, proto, "weightless") == (
        NOTE,
        "2 nodes, but no stored tensor is a parameter",
        (),
    )


def test_model_with_a_training_graph_alone_is_read(tmp_path):
    proto = onnx.ModelProto(ir_version=8)
    proto.training_info.add().initialization.initializer.append(numpy_helper.from_array(ramp(2), "w"))

    assert audit(tmp_path, proto).stored_elements == 2


# names


def test_name_stored_twice_in_one_graph_is_reported_and_both_are_counted(tmp_path):
    ledger = audit(tmp_path, linear(numpy_helper.from_array(ramp(3, 2, start=50), "w")))

    found = finding(ledger, "duplicate-name")
    assert (found.severity, found.subjects) == (WARNING, ("w",))
    assert found.message == "1 name is stored more than once in one graph"
    assert (ledger.stored_elements, len(ledger.entries)) == (12, 2)


def test_one_name_in_two_graphs_is_no_duplicate(tmp_path):
    proto = text_model("""
        g (bool c, float[1,2] x) => (float[1,2] y) {
            y = If(c) <then_branch = t () => (float[1,2] a) <float[2,2] w = {1, 2, 3, 4}> { a = MatMul(x, w) },
                       else_branch = e () => (float[1,2] b) <float[2,2] w = {5, 6, 7, 8}> { b = MatMul(x, w) }>
        }
    """)

    assert "duplicate-name" not in finding_ids(audit(tmp_path, proto))


def test_name_that_is_no_utf8_is_reported_as_it_is_shown(tmp_path):
    crafted = linear().SerializeToString().replace(b"\x01w", b"\x01\xff")

    assert describe_finding(tmp_path, crafted, "non-utf8-name") == (
        WARNING,
        "1 name is not UTF-8; shown with bytes escaped",
        (r"\xff",),
    )


def test_names_that_steer_a_terminal_are_reported(tmp_path):
    proto = linear()
    proto.graph.node[0].name = "clear\x1b[2J"
    proto.graph.node[0].input[0] = proto.graph.input[0].name = "\u202ex"

    assert describe_finding(tmp_path, proto, "control-characters") == (
        WARNING,
        "2 names have control or invisible characters; shown escaped",
        ("clear\x1b[2J", "\u202ex"),
    )


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (3, "as this IR version requires"),
        (4, "so a caller may replace their values"),
        (10, "so a caller may replace their values"),
    ],
)
def test_initializer_that_is_an_input_too_is_reported(tmp_path, version, why):
    proto = linear()
    proto.ir_version = version
    proto.graph.input.append(helper.make_tensor_value_info("w", 1, [3, 2]))

    assert describe_finding(tmp_path, proto, "initializer-is-input") == (
        NOTE,
        f"1 initializer is among the graph's inputs too, {why}",
        ("w",),
    )


# versions


def test_model_without_opsets_is_reported(tmp_path):
    proto = linear()
    del proto.opset_import[:]

    severity, message, _ = describe_finding(tmp_path, proto, "no-opset")

    assert severity is WARNING
    assert message.startswith("the model imports no opset")


@pytest.mark.parametrize(("version", "is_old"), [(1, True), (6, True), (7, False), (18, False)])
def test_opset_that_onnxruntime_does_not_run_is_old(tmp_path, version, is_old):
    proto = linear()
    proto.opset_import[0].version = version

    found = [f for f in audit(tmp_path, proto).findings if f.id == "old-opset"]

    message = f"opset {version} is older than 7, the first that onnxruntime runs"
    assert found == ([Finding("old-opset", WARNING, message)] if is_old else [])


@pytest.mark.parametrize(
    ("opsets", "subjects"),
    [
        ([("", 17), ("", 13)], ("ai.onnx 13, 17",)),
        ([("", 17), ("ai.onnx", 13)], ("ai.onnx 13, 17",)),
        ([("", -1)], ("ai.onnx -1",)),
        ([("", 2**62)], (f"ai.onnx {2**62}",)),
        ([("", 18), ("my", 0), ("your", -5)], ("my 0", "your -5")),
    ],
)
def test_opsets_that_contradict_or_are_no_version_are_reported(tmp_path, opsets, subjects):
    proto = linear()
    del proto.opset_import[:]
    proto.opset_import.extend([helper.make_opsetid(domain, version) for domain, version in opsets])

    assert describe_finding(tmp_path, proto, "invalid-version") == (
        WARNING,
        "opset imports that contradict each other, or are not valid versions",
        subjects,
    )


def test_opset_that_is_imported_twice_alike_is_no_finding(tmp_path):
    proto = linear()
    proto.opset_import.extend(list(proto.opset_import))  # extending a field with itself never ends

    assert finding_ids(audit(tmp_path, proto)) == []


@pytest.mark.parametrize("version", [0, -1, 999])
def test_ir_version_that_nobody_knows_is_reported(tmp_path, version):
    proto = linear()
    proto.ir_version = version

    severity, message, subjects = describe_finding(tmp_path, proto, "invalid-version")

    assert (severity, subjects) == (WARNING, ())
    assert message.startswith(
        f"IR version {version} is unknown to onnx {onnx.__version__}, which knows 1 to "
    )


# functions


def with_functions(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    proto = linear()
    proto.functions.extend(functions)
    proto.graph.node.append(helper.make_node("f", ["y"], ["z"], domain="my"))
    proto.opset_import.add(domain="my", version=1)
    return proto


def function(name: str, calls: str) -> onnx.FunctionProto:
    nodes = [helper.make_node(calls, ["a"], ["b"], domain="my")] if calls else []
    return helper.make_function("my", name, ["a"], ["b"], nodes, [helper.make_opsetid("my", 1)])


def test_functions_that_call_themselves_are_reported(tmp_path):
    proto = with_functions(function("f", "g"), function("g", "f"), function("h", "f"))

    severity, message, subjects = describe_finding(tmp_path, proto, "recursive-function")

    assert severity is WARNING
    assert subjects[:2] == ("function:my:f", "function:my:g")
    assert "call themselves, directly or through other functions; no runtime can inline that" in message


def test_function_that_one_in_a_circle_calls_is_not_recursive_itself(tmp_path):
    circle = helper.make_function(
        "my",
        "f",
        ["a"],
        ["b"],
        [helper.make_node("f", ["a"], ["t"], domain="my"), helper.make_node("h", ["t"], ["b"], domain="my")],
        [helper.make_opsetid("my", 1)],
    )

    _, _, subjects = describe_finding(
        tmp_path, with_functions(circle, function("h", "")), "recursive-function"
    )

    assert subjects == ("function:my:f",)


def test_function_that_exists_twice_is_reported(tmp_path):
    assert describe_finding(
        tmp_path, with_functions(function("f", ""), function("f", "")), "duplicate-function"
    ) == (
        WARNING,
        "1 function is defined more than once; calls are taken to mean the first definition",
        ("my.f",),
    )


# nesting


def nested(depth: int) -> bytes:
    graph = block(1, block(4, "Relu"))
    for _ in range(depth):
        graph = block(
            1, block(4, "If") + block(5, block(1, "then_branch") + block(6, graph) + integer(20, 5))
        )
    return integer(1, 10) + block(8, integer(2, 18)) + block(7, graph)


@pytest.mark.parametrize(("depth", "is_deep"), [(32, False), (33, True), (100, True)])
def test_graphs_nested_deeper_than_protobuf_reads_are_reported(tmp_path, depth, is_deep):
    found = [f for f in audit(tmp_path, nested(depth)).findings if f.id == "deep-nesting"]

    message = f"graphs are nested {depth} deep; protobuf parsers stop at 32"
    assert found == ([Finding("deep-nesting", WARNING, message)] if is_deep else [])


# wiring


def test_value_that_nothing_provides_is_reported(tmp_path):
    proto = text_model(
        "g (float[2] x) => (float[2] y) { h = Add(x, nope) k = Add(h, nope) y = Add(k, other) }"
    )

    assert describe_finding(tmp_path, proto, "undefined-input") == (
        WARNING,
        "2 values are read, but never provided",
        ("nope", "other"),
    )


def test_attribute_of_a_function_outside_of_one_is_reported(tmp_path):
    proto = linear()
    node = helper.make_node("Constant", [], ["c"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, ref_attr_name="given")
    proto.graph.node.append(node)

    severity, message, subjects = describe_finding(tmp_path, proto, "undefined-input")

    assert (severity, subjects) == (WARNING, ("c",))
    assert (
        message == "takes its value from an attribute of a function, but is outside any function (1 tensor)"
    )


def test_value_that_is_read_before_it_is_computed_is_reported(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Relu(h) h = Relu(x) }")

    assert describe_finding(tmp_path, proto, "not-sorted") == (
        WARNING,
        "1 value is read before being computed, or part of a cycle",
        ("h",),
    )


def test_value_that_is_computed_twice_is_reported(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Relu(x) y = Abs(x) x = Neg(y) }")

    assert describe_finding(tmp_path, proto, "duplicate-output") == (
        WARNING,
        "2 values are computed by more than one node, or also an input or a stored tensor",
        ("x", "y"),
    )


# operators


@pytest.mark.parametrize(
    ("domains", "where"),
    [
        (["com.microsoft", "com.microsoft.nchwc"], "onnxruntime's own"),
        (["com.microsoft", "my"], "not ONNX's own"),
        (["my", "my"], "not ONNX's own"),
        (["ai.onnx.contrib", "com.microsoft"], "not ONNX's own"),
        (["com.microsoftware", "com.microsoft"], "not ONNX's own"),
    ],
)
def test_operators_of_others_are_reported_by_their_domain(tmp_path, domains, where):
    proto = linear()
    for index, domain in enumerate(domains):
        proto.graph.node.append(helper.make_node("Odd", ["y"], [f"o{index}"], domain=domain))

    severity, message, subjects = describe_finding(tmp_path, proto, "custom-domain")

    assert (severity, message) == (NOTE, f"2 nodes use operators that are {where}")
    assert subjects == tuple(f"{d}: {format_many(domains.count(d), 'node')}" for d in sorted(set(domains)))


def test_one_operator_of_others_is_reported_as_one(tmp_path):
    proto = linear()
    proto.graph.node.append(helper.make_node("Odd", ["y"], ["z"], domain="my"))

    _, message, subjects = describe_finding(tmp_path, proto, "custom-domain")

    assert (message, subjects) == ("1 node uses an operator that is not ONNX's own", ("my: 1 node",))


def test_local_function_is_no_operator_of_others(tmp_path):
    assert "custom-domain" not in finding_ids(audit(tmp_path, with_functions(function("f", ""))))


def test_every_domain_that_onnx_defines_operators_in_is_its_own():
    assert {schema.domain for schema in onnx.defs.get_all_schemas_with_history()} < ONNX_DOMAINS


@pytest.mark.parametrize("domain", sorted(ONNX_DOMAINS - {"", DEFAULT_DOMAIN}))
def test_domains_of_onnx_are_not_those_of_others(tmp_path, domain):
    proto = linear()
    proto.graph.node.append(helper.make_node("Scaler", ["y"], ["z"], domain=domain))

    assert "custom-domain" not in finding_ids(audit(tmp_path, proto))


def test_operator_that_onnx_does_not_define_is_reported(tmp_path):
    proto = linear()
    for index, op in enumerate(["NoSuchOp", "", "NoSuchOp"]):
        proto.graph.node.append(helper.make_node(op, ["y"], [f"o{index}"]))

    assert describe_finding(tmp_path, proto, "unknown-operator") == (
        WARNING,
        "3 nodes name operators that ONNX does not define",
        (": 1 node", "NoSuchOp: 2 nodes"),
    )


# tensors that could not be read


@pytest.mark.parametrize(
    ("fields", "wanted", "message"),
    [
        (
            {"location": "absent.bin"},
            "external-missing",
            "'absent.bin' is not there (1 tensor, 6 elements, 24 bytes)",
        ),
        (
            {"location": "w.bin"},
            "external-short",
            "w.bin: needs 24 bytes at offset 0, the file has 5 of them (1 tensor)",
        ),
        (
            {"location": "../w.bin"},
            "external-escapes",
            "location '../w.bin' leads outside the model's folder (1 tensor, 6 elements, 24 bytes)",
        ),
    ],
)
def test_external_data_that_cannot_be_had_is_an_error_with_its_tensors(tmp_path, fields, wanted, message):
    (tmp_path / "w.bin").write_bytes(bytes(5))
    proto = text_model(LINEAR)
    proto.graph.initializer.append(external("w", [3, 2], **fields))

    assert describe_finding(tmp_path, proto, wanted) == (ERROR, message, ("w",))


def test_tensors_that_miss_one_file_are_one_finding(tmp_path):
    proto = text_model(LINEAR)
    proto.graph.initializer.extend(external(name, [2], location="absent.bin") for name in ("w", "v"))

    assert describe_finding(tmp_path, proto, "external-missing") == (
        ERROR,
        "'absent.bin' is not there (2 tensors, 4 elements, 16 bytes)",
        ("v", "w"),
    )


def test_payload_that_does_not_fit_its_dims_is_an_error(tmp_path):
    proto = text_model(LINEAR)
    proto.graph.initializer.append(raw("w", [3, 2], 1, bytes(20)))

    assert describe_finding(tmp_path, proto, "payload-mismatch") == (
        ERROR,
        "6 elements of FLOAT need 24 bytes and have 20 (1 tensor)",
        ("w",),
    )


def test_figures_of_a_misfit_are_those_of_each_of_several_tensors(tmp_path):
    proto = text_model(LINEAR)
    proto.graph.initializer.extend(raw(name, [3, 2], 1, bytes(20)) for name in ("w", "v"))

    _, message, subjects = describe_finding(tmp_path, proto, "payload-mismatch")

    assert message == "6 elements of FLOAT need 24 bytes and have 20 (each of 2 tensors)"
    assert subjects == ("v", "w")


def test_strings_that_are_not_there_have_no_bytes_by_their_shape(tmp_path):
    proto = text_model(LINEAR)
    proto.graph.initializer.append(external("w", [3, 2], TensorProto.STRING, location="absent.bin"))

    _, message, _ = describe_finding(tmp_path, proto, "external-missing")

    assert message == "'absent.bin' is not there (1 tensor, 6 elements)"


def test_elements_in_the_file_and_others_outside_are_not_called_stripped(tmp_path):
    odd = external("w", [3, 2], location="../w.bin")
    odd.raw_data = bytes(24)
    proto = text_model(LINEAR)
    proto.graph.initializer.append(odd)

    ledger = audit(tmp_path, proto)

    assert (
        finding(ledger, "payload-mismatch").message
        == "a tensor with elements both inside and in external data (1 tensor)"
    )
    assert finding_ids(ledger) == ["external-escapes", "payload-mismatch"]


def test_negative_dimension_is_an_error_and_the_rest_is_counted(tmp_path):
    ledger = audit(tmp_path, linear(raw("bad", [2, -3], 1, b"")))

    found = finding(ledger, "invalid-dims")
    assert (found.severity, found.subjects) == (ERROR, ("bad",))
    assert found.message == "a negative dimension in [2, -3]: its elements cannot be counted (1 tensor)"
    assert (ledger.stored_elements, ledger.parameters) == (6, 6)


def test_unknown_dtype_is_an_error(tmp_path):
    assert describe_finding(tmp_path, linear(raw("odd", [2], 99, b"1234")), "unknown-dtype") == (
        ERROR,
        "no element type has the number 99 (1 tensor)",
        ("odd",),
    )


def test_keys_of_external_data_that_mean_nothing_are_reported(tmp_path):
    (tmp_path / "v.bin").write_bytes(bytes(8))

    assert describe_finding(
        tmp_path, linear(external("v", [2], location="v.bin", evil="x")), "unknown-fields"
    ) == (
        WARNING,
        "external data has unknown keys: evil (1 tensor)",
        ("v",),
    )


# bytes


def test_fields_that_the_format_does_not_define_are_reported(tmp_path):
    ledger = audit(tmp_path, linear().SerializeToString() + block(500, "x" * 300))

    unknown = next(account.nbytes for account in ledger.accounts if account.name == UNKNOWN)
    found = finding(ledger, "unknown-fields")
    assert (found.severity, found.subjects, unknown) == (WARNING, (), 304)
    assert found.message.startswith("304 bytes are in fields that the ONNX format does not define")


@pytest.mark.parametrize(("length", "is_reported"), [(900, False), (1100, True)])
def test_notes_on_nodes_that_could_be_stripped_are_reported(tmp_path, length, is_reported):
    proto = linear()
    set_metadata(proto.graph.node[0], {"pkg.torch.onnx.stack_trace": "x" * length})

    ledger = audit(tmp_path, proto)

    noted = next(account.nbytes for account in ledger.accounts if account.name == NODE_METADATA)
    found = [f for f in ledger.findings if f.id == "strippable-metadata"]
    assert [(f.severity, f.subjects) for f in found] == [(NOTE, ())] * is_reported
    assert all(f.message.startswith(f"{noted:,} bytes could be stripped") for f in found)


def test_external_bytes_that_belong_to_no_tensor_are_reported(tmp_path):
    (tmp_path / "v.bin").write_bytes(b"\1" * 20)

    assert describe_finding(
        tmp_path, linear(external("v", [2], location="v.bin", offset=4)), "external-orphaned"
    ) == (
        WARNING,
        "12 bytes of external files belong to no tensor",
        ("v.bin: 4 bytes at offset 0", "v.bin: 8 bytes at offset 12"),
    )


def test_external_tensors_that_overlap_in_part_are_reported(tmp_path):
    (tmp_path / "v.bin").write_bytes(b"\1" * 12)
    tensors = [external("a", [2], location="v.bin"), external("b", [2], location="v.bin", offset=4)]

    assert describe_finding(tmp_path, linear(*tensors), "external-overlap") == (
        WARNING,
        "1 tensor begins within the external data of another; their bytes are booked once",
        ("a and b",),
    )


# single entries


def test_initializer_that_nothing_reads_is_reported_with_its_bytes(tmp_path):
    assert describe_finding(
        tmp_path, linear(numpy_helper.from_array(ramp(5), "idle")), "unused-initializer"
    ) == (
        WARNING,
        "5 elements (20 bytes) in 1 initializer that no output depends on",
        ("idle",),
    )


def test_initializer_that_is_an_output_is_not_unused(tmp_path):
    proto = text_model(
        "g (float[1,3] x) => (float[1,2] y, float[5] out) { y = MatMul(x, w) }",
        {"w": ramp(3, 2), "out": ramp(5)},
    )

    assert "unused-initializer" not in finding_ids(audit(tmp_path, proto))


def test_initializer_read_only_in_a_nested_graph_is_not_unused(tmp_path):
    proto = text_model(
        """
        g (bool c, float[1,3] x) => (float[1,2] y) {
            y = If(c) <then_branch = t () => (float[1,2] a) { a = MatMul(x, w) },
                       else_branch = e () => (float[1,2] b) { b = MatMul(x, w) }>
        }
        """,
        {"w": ramp(3, 2)},
    )

    assert finding_ids(audit(tmp_path, proto)) == []


def test_weights_in_constant_nodes_are_reported(tmp_path):
    proto = text_model("""
        g (float[1,3] x) => (float[1,2] y) { w = Constant<value = float[3,2] {1,2,3,4,5,6}>() y = MatMul(x, w) }
    """)

    severity, message, subjects = describe_finding(tmp_path, proto, "constant-weights")

    assert (severity, subjects) == (NOTE, ("w",))
    assert message.startswith("6 parameters are in Constant nodes")


def test_weights_in_a_list_of_a_constant_node_are_reported_too(tmp_path):
    proto = text_model("""
        g (float[1,3] x) => (float[3] y) { w = Constant<value_floats = [1.0, 2.0, 3.0]>() y = MatMul(x, w) }
    """)

    assert "constant-weights" in finding_ids(audit(tmp_path, proto))


def test_tensor_of_an_attribute_is_no_constant_weight(tmp_path):
    value = helper.make_tensor("", 1, [1], np.zeros(1, "f4"))
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], value=value)

    ledger = audit(tmp_path, helper.make_model(helper.make_graph([node], "g", [], [])))

    assert "constant-weights" not in finding_ids(ledger)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("f8", "6 learned elements are stored in 64 bits; 32 bits would take 24 bytes less"),
        ("c16", "6 learned elements are stored in 64 bits; 32 bits would take 48 bytes less"),
    ],
)
def test_weights_of_64_bits_are_reported_with_what_32_would_save(tmp_path, dtype, message):
    proto = text_model(LINEAR, {"w": ramp(3, 2).astype(dtype)})

    assert describe_finding(tmp_path, proto, "fp64-weights") == (WARNING, message, ("w",))


def test_elements_that_no_rule_explains_are_reported(tmp_path):
    proto = linear(numpy_helper.from_array(ramp(5), "odd"))
    proto.graph.node.append(helper.make_node("Relu", ["odd"], ["z"]))

    assert describe_finding(tmp_path, proto, "unattributed") == (
        WARNING,
        "5 elements that no rule explains",
        ("odd",),
    )


# contents


def test_copies_are_reported_with_elements_bytes_and_names(tmp_path):
    proto = text_model(
        "g (float[1,3] x) => (float[1,3] y) { h = MatMul(x, a) k = MatMul(h, b) y = MatMul(k, t) }",
        {"a": ramp(3, 3), "b": ramp(3, 3), "t": ramp(3, 3).T.copy()},
    )

    ledger = audit(tmp_path, proto)

    sentence = "9 elements (36 bytes) are stored again"
    assert ledger.findings == (
        Finding("duplicate-content", WARNING, f"{sentence}, unchanged", ("b = a",), 36),
        Finding("transposed-copy", WARNING, f"{sentence}, transposed", ("t = a",), 36),
    )


def test_tensors_of_one_value_are_reported(tmp_path):
    proto = text_model(
        "g (float[1,3] x) => (float[1,2] y) { h = MatMul(x, w) y = Add(h, b) }",
        {"w": ramp(3, 2), "b": np.zeros(2, "f4")},
    )

    assert describe_finding(tmp_path, proto, "constant-filled") == (
        NOTE,
        "2 learned elements are in tensors of one value throughout",
        ("b",),
    )


def test_tensors_with_nan_or_infinity_are_reported(tmp_path):
    broken = ramp(3, 2)
    broken[1, 1] = np.inf

    assert describe_finding(tmp_path, text_model(LINEAR, {"w": broken}), "nan-or-inf") == (
        WARNING,
        "1 tensor holds NaN or infinity",
        ("w",),
    )


# values made at run time


def filled(
    reader: str, shape: str = "shape = Constant<value = int64[2] {3, 200}>()", feed: str = "float[1,3] x"
) -> str:
    return f"g ({feed}) => (float[1,200] y) {{ {shape} w = ConstantOfShape(shape) {reader} }}"


def test_weights_that_are_made_when_the_model_runs_are_reported(tmp_path):
    severity, message, subjects = describe_finding(
        tmp_path, text_model(filled("y = MatMul(x, w)")), "runtime-weights"
    )

    assert (severity, subjects) == (WARNING, ("w",))
    assert message.startswith("600 elements are made by ConstantOfShape when the model runs")


@pytest.mark.parametrize("carrier", ["initializer", "constant", "list", "external"])
def test_shape_of_what_is_made_may_be_stored_anywhere(tmp_path, carrier):
    (tmp_path / "s.bin").write_bytes(np.array([3, 200], "<i8").tobytes())
    constant = "shape = Constant<value_ints = [3, 200]>()" if carrier == "list" else ""
    proto = text_model(
        filled(
            "y = MatMul(x, w)",
            constant if carrier != "constant" else "shape = Constant<value = int64[2] {3, 200}>()",
        )
    )
    if carrier == "initializer":
        proto.graph.initializer.append(numpy_helper.from_array(np.array([3, 200], "i8"), "shape"))
    elif carrier == "external":
        proto.graph.initializer.append(external("shape", [2], TensorProto.INT64, location="s.bin"))

    assert "runtime-weights" in finding_ids(audit(tmp_path, proto))


@pytest.mark.parametrize(
    "text",
    [
        filled("y = Add(x, w)"),
        filled("z = Shape(w) y = Relu(x)"),
        filled("y = MatMul(x, w)", "", "float[1,3] x, int64[2] shape"),
        filled("y = MatMul(x, w)", "shape = Shape(x)"),
        filled("y = MatMul(x, w)", "shape = Constant<value = int64[2] {3, -1}>()"),
    ],
    ids=["an addend", "no weight", "a caller's shape", "a computed shape", "no shape"],
)
def test_what_is_made_for_anything_else_is_not_reported(tmp_path, text):
    assert "runtime-weights" not in finding_ids(audit(tmp_path, text_model(text)))


def test_runtime_weights_of_a_model_of_others_are_all_that_it_has(shared):
    path = shared / "models" / "constantofshape" / "light_squeezenet.onnx"
    if not path.is_file():
        pytest.skip(f"no {path}")

    found = finding(audit_model(path), "runtime-weights")

    assert found.message.startswith("1,234,856 elements are made by ConstantOfShape")


# groups


def test_groups_that_overlap_are_reported_with_what_is_counted_twice(tmp_path):
    weights = {
        "enc.a.weight": ramp(3, 3),
        "enc.b.weight": ramp(3, 3, start=50),
        "dec.weight": ramp(3, 3, start=99),
    }
    proto = text_model(
        'g (float[1,3] x) => (float[1,3] y) { h = MatMul(x, "enc.a.weight") k = MatMul(h, "enc.b.weight") '
        'y = MatMul(k, "dec.weight") }',
        weights,
    )
    ledger = audit(tmp_path, proto)

    grouping = group_by_patterns(ledger, parse_patterns(["enc=^enc", "a=a.weight"]))

    expected = Finding(
        "overlapping-groups", NOTE, "9 parameters are counted in more than one group (1 tensor)"
    )
    assert find_overlap(grouping) == (expected,)
    assert expected in Inspection(ledger, grouping).findings


def test_groups_that_do_not_overlap_are_no_finding(tmp_path):
    grouping = group_by_patterns(audit(tmp_path, linear()), parse_patterns(["w=^w", "none=zzz"]))

    assert find_overlap(grouping) == ()


def test_tensor_with_a_shape_and_no_data_is_weightless_and_counted_by_its_shape(tmp_path):
    proto = linear()
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].ClearField("float_data")

    ledger = audit(tmp_path, proto)

    (found,) = [f for f in ledger.findings if f.id == "weightless"]
    assert found.severity is WARNING
    assert found.message == "6 elements in 1 tensor have a shape and no data: the weights are not in the file"
    assert found.subjects == (proto.graph.initializer[0].name,)
    assert ledger.stored_elements > 0


# packed weights

CODES = np.arange(64, dtype="u1").reshape(4, 1, 16)
"""Codes of 4 x 32 elements of 4 bits, in one block a row."""

PACKED = """
    <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "f" : 1]>
    g (float[1,{k}] x) => (float[1,4] y) {{ {before} y = {op} }}
    {functions}
"""


def unpacked(
    weights: dict[str, np.ndarray], before: str = "", op: str | None = None, functions: str = "", k: int = 32
) -> onnx.ModelProto:
    """Return a model with a MatMulNBits of (k, 4) that reads `c`."""
    op = op or f"com.microsoft.MatMulNBits<K = {k}, N = 4, bits = 4, block_size = 32>(x, c, s)"
    proto = onnx.parser.parse_model(PACKED.format(k=k, before=before, op=op, functions=functions))
    for name, array in {**weights, "s": np.arange(1, 5, dtype="f4")}.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


BODY = """
    <domain: "f", opset_import: ["" : 21, "com.microsoft" : 1]>
    linear (x, w, s) => (y) { c = Identity(w)
    y = com.microsoft.MatMulNBits<K = 32, N = 4, bits = 4, block_size = 32>(x, c, s) }
"""

STORED = {
    "bytes": lambda: unpacked({"c": CODES}),
    "words": lambda: unpacked({"c": CODES.view("i4")}),
    "cast bytes in words": lambda: unpacked({"w": CODES.astype("i4")}, "c = Cast<to = 2>(w)"),
    "cast bytes in floats": lambda: unpacked({"w": CODES.astype("f4")}, "c = Cast<to = 2>(w)"),
    "reshaped": lambda: unpacked(
        {"w": CODES.reshape(-1), "shape": np.array([4, 1, 16])}, "c = Reshape(w, shape)"
    ),
    "dequantized, then cast": lambda: unpacked(
        {"w": CODES, "one": np.array(1, "f4")}, "d = DequantizeLinear(w, one) c = Cast<to = 2>(d)"
    ),
    "given to a function": lambda: unpacked({"c": CODES}, op="f.linear(x, c, s)", functions=BODY),
}


@pytest.mark.parametrize("stored", STORED)
def test_a_packed_weight_counts_k_x_n_whatever_stores_its_codes(tmp_path, stored):
    ledger = audit(tmp_path, STORED[stored]())

    assert ledger.parameters == 128
    assert "packed-mismatch" not in finding_ids(ledger)


def test_codes_in_a_constant_node_count_k_x_n(tmp_path):
    proto = unpacked({})
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(CODES, "c"))
    proto.graph.node.insert(0, constant)

    assert audit(tmp_path, proto).parameters == 128


@pytest.mark.parametrize("k", [32, 33, 40, 63, 64])
def test_rows_that_end_within_a_block_are_padded(tmp_path, k):
    blocks = -(-k // 32)
    ledger = audit(tmp_path, unpacked({"c": np.arange(64 * blocks, dtype="u1").reshape(4, blocks, 16)}, k=k))

    assert ledger.parameters == 4 * k
    assert "packed-mismatch" not in finding_ids(ledger)


@pytest.mark.parametrize(
    ("codes", "counted", "detail"),
    [
        (np.arange(48, dtype="u1"), 48, "c has 48 bytes, 128 elements of 4 bits take 64"),
        (np.arange(640, dtype="i4"), 128, "c has 2,560 bytes, 128 elements of 4 bits take 64"),
    ],
)
def test_codes_that_are_not_as_many_as_the_operator_says_are_reported(tmp_path, codes, counted, detail):
    proto = unpacked({"c": codes})

    severity, message, subjects = describe_finding(tmp_path, proto, "packed-mismatch")

    assert severity is Severity.ERROR
    assert message == f"1 packed weight disagrees with the operator: {detail}"
    assert subjects == ("c",)
    assert audit(tmp_path, proto).parameters == counted


@pytest.mark.parametrize("bits", [0, -4, 99])
def test_bits_that_no_code_has_count_nothing_that_is_not_stored(tmp_path, bits):
    op = f"com.microsoft.MatMulNBits<K = 1099511627776, N = 1099511627776, bits = {bits}>(x, c, s)"

    ledger = audit(tmp_path, unpacked({"c": CODES}, op=op))

    assert ledger.parameters == 64
    assert "packed-mismatch" in finding_ids(ledger)
