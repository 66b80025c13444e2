"""Account of a whole model, and the identities that hold for every file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from models import audit, entry, external, ramp, save, text_model
from onnx import helper, numpy_helper

from analyzer.account import audit as audit_module
from analyzer.account.audit import audit_model, file_digests
from analyzer.account.bytes import PADDING, Booked, book_bytes
from analyzer.account.ledger import Account, Role
from analyzer.errors import LedgerError, ModelReadError
from analyzer.read.book import STRUCTURE


def test_tied_embedding_is_entered_once(tmp_path):
    ledger = audit(
        tmp_path,
        text_model("""
            tied_head (int64[1,4] ids) => (float[1,4,6] logits)
            <float[6,2] wte = {0,1,2,3,4,5,6,7,8,9,10,11}>
            {
                [embed] h = Gather(wte, ids)
                [tie] head = Transpose<perm = [1, 0]>(wte)
                [project] logits = MatMul(h, head)
            }
        """),
    )

    assert (ledger.parameters, ledger.stored_elements, len(ledger.entries)) == (12, 12, 1)
    assert entry(ledger, "wte").uses == 2


@pytest.mark.parametrize("as_text", [True, False])
def test_path_may_be_text(tmp_path, as_text):
    path = save(
        tmp_path, text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": ramp(3, 2)})
    )

    ledger = audit_model(str(path) if as_text else path)

    assert ledger.parameters == 6


def test_path_may_be_relative(tmp_path, monkeypatch):
    (tmp_path / "w.bin").write_bytes(bytes(24))
    proto = text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(external("w", [3, 2], location="w.bin"))
    save(tmp_path, proto)
    monkeypatch.chdir(tmp_path)

    ledger = audit_model("model.onnx")

    assert [file.path for file in ledger.model.files] == ["model.onnx", "w.bin"]


def test_evidence_covers_every_stored_element(tmp_path):
    weights = {"fc.weight": ramp(3, 3), "w": ramp(3, 3).T.copy(), "v": ramp(3, 3, start=50)}
    proto = text_model(
        """g (float[1,3] x) => (float[1,3] y) {
            a = MatMul(x, "fc.weight") b = MatMul(a, w) c = MatMul(b, v) y = Relu(c)
        }""",
        weights,
    )

    ledger = audit(tmp_path, proto)

    assert {evidence.value: count for evidence, count in ledger.basis.items()} == {
        "name": 9,
        "content": 9,
        "structure": 9,
    }


def test_every_carrier_in_one_file_is_counted_once(tmp_path):
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(ramp(5))),
        helper.make_node("Constant", [], ["l"], value_ints=[1, 2, 3]),
        helper.make_node("ConstantOfShape", ["l"], ["f"], value=numpy_helper.from_array(ramp(1))),
        helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[1.0, 2.0], scale=[1.0, 2.0]),
    ]
    graph = helper.make_graph(nodes, "g", [], [], [numpy_helper.from_array(ramp(7), "w")])

    ledger = audit(tmp_path, helper.make_model(graph))

    assert ledger.stored_elements == 5 + 3 + 1 + 2 + 2 + 7
    assert sum(account.nbytes for account in ledger.accounts) == (tmp_path / "model.onnx").stat().st_size


def test_roles_sum_to_the_stored_elements(tmp_path):
    weights = {"a.weight": ramp(3), "a.running_mean": ramp(4), "shape": ramp(2).astype("i8"), "odd": ramp(5)}
    proto = text_model("g (float[3] x) => (float[3] y) { h = Reshape(x, shape) y = Relu(odd) }", weights)

    ledger = audit(tmp_path, proto)

    by_role = {role: sum(e.tensor.numel for e in ledger.entries if e.role is role) for role in Role}
    assert by_role == {
        Role.PARAMETER: 3,
        Role.BUFFER: 4,
        Role.QUANTIZATION: 0,
        Role.CONSTANT: 2,
        Role.UNATTRIBUTED: 5,
    }
    assert sum(by_role.values()) == ledger.stored_elements


def booked_wrongly(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Make the bookkeeping of bytes return wrong results."""

    def book(*args: Any) -> Booked:
        return book_bytes(*args)._replace(**changes)

    monkeypatch.setattr(audit_module, "book_bytes", book)


def test_account_that_does_not_sum_up_is_a_defect_and_no_result(tmp_path, monkeypatch):
    names = (*Role, *STRUCTURE, PADDING)
    booked_wrongly(monkeypatch, accounts=tuple(Account(name, int(name == "parameter")) for name in names))

    with pytest.raises(LedgerError, match="accounts hold 1 bytes, but the files have"):
        audit(tmp_path, text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }"))


def test_shared_bytes_that_do_not_sum_up_are_a_defect_and_no_result(tmp_path, monkeypatch):
    booked_wrongly(monkeypatch, shared=7)

    with pytest.raises(
        LedgerError, match="payload accounts and shared bytes are 7 bytes, but the tensors have 0"
    ):
        audit(tmp_path, text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }"))


def test_payload_accounts_and_what_is_shared_are_the_stored_bytes(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(range(1, 41)))
    proto = text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": ramp(3, 2)})
    for index in range(3):
        proto.graph.initializer.append(external(f"v{index}", [4], location="w.bin", offset=8 * index))

    ledger = audit(tmp_path, proto)

    payload = sum(account.nbytes for account in ledger.accounts if account.name in list(Role))
    assert (payload, ledger.shared_nbytes) == (24 + 32, 16)
    assert payload + ledger.shared_nbytes == ledger.stored_nbytes


def test_digests_are_sha256_of_every_file(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"abcdefgh")
    proto = text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.graph.initializer.append(external("w", [2], location="w.bin"))
    ledger = audit(tmp_path, proto)

    digests = file_digests(ledger.model)

    assert digests == {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("model.onnx", "w.bin")
    }


def test_second_run_gives_the_same_ledger(tmp_path):
    path = save(
        tmp_path, text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": ramp(3, 2)})
    )

    assert audit_model(path) == audit_model(path)


def test_unreadable_model_is_an_error_with_its_path(tmp_path):
    with pytest.raises(ModelReadError, match=r"model\.onnx"):
        audit(tmp_path, b"text")


def test_chain_of_many_functions_is_counted_without_expanding_it(tmp_path):
    """Each of 40 functions calls the next one twice: 2**40 calls, 40 bodies."""
    opset = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    functions = [
        helper.make_function(
            "my",
            f"f{i}",
            ["a"],
            ["c"],
            [
                helper.make_node(
                    f"f{i + 1}" if i < 39 else "Relu", ["a"], ["b"], domain="my" if i < 39 else ""
                ),
                helper.make_node(
                    f"f{i + 1}" if i < 39 else "Relu", ["b"], ["c"], domain="my" if i < 39 else ""
                ),
            ],
            opset,
        )
        for i in range(40)
    ]
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="my")], "g", [], [])

    ledger = audit(tmp_path, helper.make_model(graph, functions=functions, opset_imports=opset))

    assert sum(1 for _ in ledger.model.nodes()) == 81
    assert [calls.calls for calls in ledger.calls] == [2**index for index in range(40)]


def test_function_that_calls_itself_is_counted(tmp_path):
    function = helper.make_function(
        "my",
        "f",
        ["a"],
        ["b"],
        [helper.make_node("f", ["a"], ["b"], domain="my")],
        [helper.make_opsetid("my", 1)],
    )
    graph = helper.make_graph([helper.make_node("f", ["x"], ["y"], domain="my")], "g", [], [])

    ledger = audit(tmp_path, helper.make_model(graph, functions=[function]))

    assert [(function.domain, function.name) for function in ledger.model.functions] == [("my", "f")]
    assert [calls.calls for calls in ledger.calls] == [None]


def test_graph_whose_nodes_form_a_circle_is_counted(tmp_path):
    proto = text_model(
        "g (float[3,3] x) => (float[3,3] y) { a = Concat<axis = 0>(b, w) b = Concat<axis = 0>(a, w) y = MatMul(x, b) }",
        {"w": ramp(3, 3)},
    )

    assert audit(tmp_path, proto).stored_elements == 9
