"""Third-party files, compared with facts established without onnxledger."""

from __future__ import annotations

import functools
import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
from bookkeeper import Bookkeeper
from models import NAME_SCOPES

from analyzer.account.audit import audit_model, file_digests
from analyzer.account.ledger import Ledger, Role
from analyzer.errors import ModelReadError
from analyzer.model import Carrier, GraphPath, StoredTensor, label
from analyzer.model.dtypes import DType
from analyzer.read.book import ORPHANED, UNKNOWN

FOLDER = Path(os.environ.get("ONNXLEDGER_CASES", Path(__file__).parent.parent.parent / "shared"))
EXPECTED = FOLDER / "models" / "expected.json"
DENSE = (Carrier.INITIALIZER, Carrier.CONSTANT, Carrier.ATTRIBUTE_TENSOR)
DEFAULT = ("", "ai.onnx")
ONNX_DOMAINS = {*DEFAULT, "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training"}

Case = dict[str, Any]


def cases(loadable: bool) -> list[Any]:
    """Return the cases, or one that skips, with the fixture's reason, if the folder is absent."""
    if not EXPECTED.is_file():
        return [pytest.param({}, id="absent")]
    found = json.loads(EXPECTED.read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["case"]) for case in found if case["facts"]["loadable"] is loadable]


@pytest.fixture
def models(shared: Path) -> Path:
    if not (shared / "models" / "expected.json").is_file():
        pytest.skip(f"no models/expected.json in {shared}")
    return shared / "models"


@functools.cache
def ledger_of(path: Path) -> Ledger:
    """Audit a model once for all of its tests."""
    return audit_model(path)


every_case = pytest.mark.parametrize("case", cases(loadable=True))


@pytest.fixture
def ledger(models: Path, case: Case) -> Ledger:
    return ledger_of(models / case["file"])


@pytest.fixture
def facts(case: Case) -> Any:
    return case.get("facts", {})


def tensors(ledger: Ledger, *carriers: Carrier) -> list[StoredTensor]:
    return [tensor for tensor in ledger.model.tensors() if tensor.carrier in carriers]


def elements(found: list[StoredTensor]) -> int:
    return sum(tensor.numel for tensor in found)


def by_dtype(found: list[StoredTensor]) -> Counter[str]:
    """Count elements by type."""
    counted: Counter[str] = Counter()
    for tensor in found:
        counted[tensor.dtype.name] += tensor.numel
    return +counted


def unread(ledger: Ledger, prefix: str, words: str = "") -> list[str]:
    """Return the names of tensors about which the reader noted a problem."""
    found = ledger.model.unread
    return [key[1] for finding, key, sentence in found if finding.startswith(prefix) and words in sentence]


# the file


@every_case
def test_header_is_that_of_the_case(ledger: Ledger, facts: Any) -> None:
    model = ledger.model

    assert model.files[0].nbytes == facts["size"]
    assert model.ir_version == facts["ir_version"]
    assert list(model.opsets) == [(domain or "ai.onnx", version) for domain, version in facts["opsets"]]
    assert model.producer == " ".join(filter(None, (facts["producer"], facts["producer_version"])))


@every_case
def test_digest_is_that_of_the_case(ledger: Ledger, facts: Any) -> None:
    assert file_digests(ledger.model)[ledger.model.files[0].path] == facts["sha256"]


@every_case
def test_accounts_sum_to_the_sizes_on_disk(models: Path, case: Case, ledger: Ledger) -> None:
    path = models / case["file"]

    on_disk = [path, *(path.parent / file.path for file in ledger.model.files[1:])]
    assert sum(account.nbytes for account in ledger.accounts) == sum(file.stat().st_size for file in on_disk)


@pytest.mark.slow
@every_case
def test_each_account_is_what_protobuf_says_its_fields_take(models: Path, case: Case, ledger: Ledger) -> None:
    """These files are in protobuf's own encoding, except for fields in another order."""
    proto = onnx.load(models / case["file"], load_external_data=False)
    nbytes = Bookkeeper(proto).nbytes
    if nbytes[UNKNOWN]:
        pytest.skip("has fields that the format does not define")

    assert dict(ledger.model.structure) | {ORPHANED: 0} == {
        name: nbytes[name] for name, _ in ledger.model.structure
    } | {ORPHANED: 0}


# nodes and graphs


@every_case
def test_nodes_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    nodes = list(ledger.model.nodes())

    assert len(ledger.model.graphs[0].nodes) == facts["n_nodes"]
    assert len(nodes) == facts["n_nodes_all"]
    assert sum(not node.name for node in nodes) == facts["unnamed_nodes"]
    assert any(NAME_SCOPES in node.metadata for node in nodes) is facts["torch_dynamo_meta"]


@every_case
def test_operators_and_domains_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    nodes = list(ledger.model.nodes())
    used = Counter(
        node.op_type if node.domain in DEFAULT else f"{node.domain}::{node.op_type}" for node in nodes
    )
    domains = {node.domain for node in nodes} | {domain for domain, _ in ledger.model.opsets}

    assert {op: used[op] for op in facts["quant_ops"]} == facts["quant_ops"]
    assert sorted(domains - ONNX_DOMAINS) == facts["custom_domains"]


@every_case
def test_nested_graphs_and_functions_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    model = ledger.model
    holders = {(graph.path, node.position): node.op_type for graph in model.graphs for node in graph.nodes}

    assert model.nested_graphs == facts["n_subgraphs"]
    assert Counter(holders[g.parent] for g in model.graphs if g.parent is not None) == facts["subgraph_ops"]
    assert max(len(graph.path) for graph in model.graphs) == facts["max_depth"]
    assert [f"{f.domain}::{f.name}" for f in model.functions] == facts["functions"]


# stored elements


@every_case
def test_stored_elements_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    kinds = dict(zip(("init", "const", "attr"), DENSE, strict=True))

    assert elements(tensors(ledger, *DENSE)) == facts["all_stored_tensor_elems"]
    found = {kind: elements(tensors(ledger, carrier)) for kind, carrier in kinds.items()}
    assert {kind: numel for kind, numel in found.items() if numel} == facts["stored_elems_by_kind"]


@every_case
def test_stored_elements_of_each_graph_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    """The facts list the dozen largest scopes, under names of their own."""
    found: Counter[GraphPath] = Counter()
    for tensor in tensors(ledger, *DENSE):
        found[tensor.graph_path] += tensor.numel

    assert len(found) == facts["n_scopes_with_tensors"]
    largest = sorted(facts["stored_elems_by_scope"].values(), reverse=True)
    assert sorted(found.values(), reverse=True)[: len(largest)] == largest


@every_case
def test_initializers_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    found = tensors(ledger, Carrier.INITIALIZER)
    main = [tensor for tensor in found if not tensor.graph_path]

    assert (len(main), elements(main)) == (facts["n_init"], facts["init_elems_main"])
    assert (len(found), elements(found)) == (facts["n_init_all"], facts["init_elems_all"])
    assert by_dtype(found) == +Counter(facts["init_elems_by_dtype"])
    assert sum(tensor.shape == () for tensor in found) == facts["scalar_inits"]
    assert sum(tensor.numel == 0 for tensor in found) == facts["zero_elem_inits"]
    assert sum(tensor.dtype is DType.STRING for tensor in found) == facts["string_inits"]
    names = Counter(tensor.name for tensor in found)
    assert sum(times > 1 for times in names.values()) == facts["cross_scope_same_name"]


@every_case
def test_largest_initializer_is_that_of_the_case(ledger: Ledger, facts: Any) -> None:
    found = tensors(ledger, Carrier.INITIALIZER)
    if not facts["largest_init"]:
        assert found == []
        return

    numel, name, shape, dtype = facts["largest_init"]
    assert max(tensor.numel for tensor in found) == numel
    assert (name, tuple(shape), dtype) in [(t.name, t.shape, t.dtype.name) for t in found if t.numel == numel]


@every_case
def test_constants_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    """The facts call an integer list INT, and count one that a function takes from its caller, which is not stored."""
    found = tensors(ledger, Carrier.CONSTANT)
    lists = tensors(ledger, Carrier.CONSTANT_LIST)
    others = tensors(ledger, Carrier.ATTRIBUTE_TENSOR)
    of_the_caller = {"pkg.onnxscript.torch_lib::_aten_linalg_vector_norm_no_dim_onnx": 1}
    taken = sum(of_the_caller.get(name, 0) for name in facts["functions"])

    assert len(found) + len(lists) + taken == facts["n_const_tensors"]
    assert elements(found) + elements(lists) + taken == facts["const_elems"]
    expected = Counter(facts["const_elems_by_dtype"])
    expected["INT64"] += expected.pop("INT", 0)
    expected["FLOAT"] -= taken
    assert by_dtype([*found, *lists, *others]) == +expected
    in_functions = [t for t in (*found, *lists) if "".join(t.graph_path).startswith("function:")]
    assert len(in_functions) + taken == facts["const_in_functions"]


@every_case
def test_tensors_in_other_attributes_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    found = tensors(ledger, Carrier.ATTRIBUTE_TENSOR)

    assert (len(found), elements(found)) == (facts["other_attr_tensors"], facts["other_attr_tensor_elems"])


@every_case
def test_sparse_tensors_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    found = tensors(ledger, Carrier.SPARSE_INITIALIZER, Carrier.SPARSE_CONSTANT)

    assert sum(t.carrier is Carrier.SPARSE_INITIALIZER for t in found) == facts["n_sparse_init"]
    assert elements(found) == facts["sparse_nnz"]
    assert sum(math.prod(tensor.shape) for tensor in found) == facts["sparse_dense_elems"]


@every_case
def test_long_lists_of_attributes_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    model = ledger.model
    operators = {(graph.path, node.position): node.op_type for graph in model.graphs for node in graph.nodes}
    found: Counter[str] = Counter()
    for tensor in tensors(ledger, Carrier.ATTRIBUTE_LIST):
        operator = operators[tensor.graph_path, tensor.node or 0]
        found[f"{operator}.{tensor.name.rpartition('.')[2]}"] += tensor.numel

    assert {name: found[name] for name in facts["big_attr_lists"]} == facts["big_attr_lists"]


# external data and payloads


@every_case
def test_external_data_is_that_of_the_case(ledger: Ledger, facts: Any) -> None:
    present = [tensor for tensor in ledger.model.tensors() if tensor.extent is not None]
    missing = unread(ledger, "external-")

    assert len(present) + len(missing) == facts["n_external"]
    found = {"present": len(present), "missing": len(missing)}
    assert {status: count for status, count in found.items() if count} == facts["external_status"]
    if present:
        assert sorted(file.path for file in ledger.model.files[1:]) == facts["external_locations"]


@every_case
def test_every_payload_in_the_file_can_be_had(ledger: Ledger, facts: Any) -> None:
    without = 0
    verified = 0
    for tensor in tensors(ledger, *DENSE):
        array = tensor.payload.array()
        if array is not None:
            assert array.shape == tensor.shape
        if tensor.extent is None:
            verified += array is not None or tensor.dtype is DType.STRING
            without += array is None and tensor.dtype is not DType.STRING

    assert (verified, without) == (
        facts["numpy_size_verified_tensors"],
        facts["tensors_without_readable_data"],
    )
    assert len(unread(ledger, "payload-mismatch", " need ")) == facts["n_len_mismatch"]


# readers of tensors


@every_case
def test_initializers_that_nothing_or_several_nodes_read_are_those_of_the_case(
    ledger: Ledger, facts: Any
) -> None:
    """The facts leave out shared tensors of fewer than 16 elements."""
    entries = {
        label(e.tensor.key): e.tensor.numel for e in ledger.entries if e.tensor.carrier is Carrier.INITIALIZER
    }
    unused = [name for f in ledger.findings if f.id == "unused-initializer" for name in f.subjects]
    shared = [e.tensor for e in ledger.entries if e.uses > 1 and e.tensor.carrier is Carrier.INITIALIZER]
    large = [tensor for tensor in shared if tensor.numel >= 16]

    assert (len(unused), sum(entries[name] for name in unused)) == (
        facts["unused_init"],
        facts["unused_init_elems"],
    )
    assert (len(large), elements(large)) == (facts["shared_init"], facts["shared_init_elems"])


@every_case
def test_initializers_that_are_inputs_too_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    sparse = {tensor.name for tensor in tensors(ledger, Carrier.SPARSE_INITIALIZER)}
    found = [name for graph in ledger.model.graphs for name in graph.overridable if name not in sparse]

    assert len(found) == facts["init_also_input"]


@every_case
def test_tensors_that_are_stored_again_transposed_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    copies = [e for e in ledger.entries if e.decided_by == "content:transposed-copy"]

    assert {frozenset((e.tensor.name, e.copy_of[1])) for e in copies if e.copy_of} == {
        frozenset(names) for *names, _ in facts["transposed_dups"]
    }


@every_case
def test_running_statistics_and_packed_weights_are_those_of_the_case(ledger: Ledger, facts: Any) -> None:
    running = [
        e.tensor for e in ledger.entries if e.role is Role.BUFFER and e.read_by == "BatchNormalization"
    ]
    packed = [e for e in ledger.entries if e.decided_by == "structure:MatMulNBits[1]"]

    assert elements(running) == facts["batchnorm_running_stat_elems"]
    assert sum(entry.parameters for entry in packed) == facts["nbits_logical_weights"]


@every_case
def test_payload_accounts_and_what_is_shared_are_the_stored_bytes(ledger: Ledger) -> None:
    payload = sum(account.nbytes for account in ledger.accounts if account.name in list(Role))

    assert payload + ledger.shared_nbytes == ledger.stored_nbytes


@every_case
def test_parameters_are_no_more_than_logical_elements(ledger: Ledger, facts: Any) -> None:
    packed = facts["nbits_logical_weights"]
    assert 0 <= ledger.parameters <= ledger.stored_elements + packed


@pytest.mark.parametrize("case", cases(loadable=False))
def test_unreadable_case_is_refused_by_its_name(models: Path, case: Case) -> None:
    path = models / case["file"]

    with pytest.raises(ModelReadError, match=path.name):
        audit_model(path)


def test_reading_the_cases_writes_nothing(models: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in models.rglob("*")}

    before = state()

    for case in json.loads((models / "expected.json").read_text(encoding="utf-8"))["cases"]:
        if case["facts"]["loadable"] and case["facts"]["size"] < 100_000:
            audit_model(models / case["file"])

    assert state() == before
