"""Every byte on disk is booked once, and bytes claimed by several tensors are reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import audit, external, ramp, text_model
from onnx import TensorProto

from analyzer.account.bytes import PADDING, Booked, Gap, book_bytes
from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.errors import LedgerError
from analyzer.model import Carrier, Extent, File, Model, NoPayload, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.read.book import ORPHANED, STRUCTURE

ALIGNMENT = 1 << 16


def accounts(ledger: Ledger | Booked) -> dict[str, int]:
    return {account.name: account.nbytes for account in ledger.accounts}


def batch_norm(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    """Return a model in which `gain` and `shift` are learned, and `mean` and `variance` are buffers."""
    proto = text_model("""
        g (float[1,4,2] x) => (float[1,4,2] y) { y = BatchNormalization(x, gain, shift, mean, variance) }
    """)
    proto.graph.initializer.extend(tensors)
    return proto


def at(name: str, offset: int = 0, location: str = "w.bin", numel: int = 4) -> onnx.TensorProto:
    """Return a tensor of floats in an external file."""
    return external(name, [numel], location=location, offset=offset)


def fill(folder: Path, nbytes: int, name: str = "w.bin") -> None:
    """Write a file without zeros, so that no gap in it is padding."""
    (folder / name).write_bytes(bytes(index % 255 + 1 for index in range(nbytes)))


def findings(ledger: Ledger) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return (message, subjects) of each finding, by id."""
    return {finding.id: (finding.message, finding.subjects) for finding in ledger.findings}


# inside the model file


def test_inline_payload_and_the_rest_sum_to_the_file(tmp_path):
    proto = text_model("g (float[2,3] x) => (float[2,5] y) { y = MatMul(x, w) }", {"w": ramp(3, 5)})

    ledger = audit(tmp_path, proto)

    found = accounts(ledger)
    assert {name: nbytes for name, nbytes in found.items() if name[0] != "["} == {
        "parameter": 60,
        "buffer": 0,
        "quantization": 0,
        "constant": 0,
        "unattributed": 0,
    }
    assert sum(found.values()) == (tmp_path / "model.onnx").stat().st_size
    assert ledger.shared_nbytes == 0


def test_accounts_are_payload_by_role_then_structure_then_what_serves_nobody(tmp_path):
    ledger = audit(tmp_path, text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }"))

    inside = [name for name in STRUCTURE if name != ORPHANED]
    assert [account.name for account in ledger.accounts] == [*Role, *inside, PADDING, ORPHANED]


def test_payload_that_another_replaces_is_orphaned_inside_the_model_too(tmp_path):
    proto = text_model("g (float[2,3] x) => (float[2,5] y) { y = MatMul(x, w) }", {"w": ramp(3, 5)})
    odd = external("v", [4], location="w.bin")
    odd.raw_data = bytes(16)
    proto.graph.initializer.append(odd)
    fill(tmp_path, 16)

    ledger = audit(tmp_path, proto)

    assert accounts(ledger)[ORPHANED] == 16
    assert "external-orphaned" not in findings(ledger)


# unclaimed bytes


def test_bytes_of_external_files_that_nobody_claims_are_orphaned(tmp_path):
    fill(tmp_path, 100)

    ledger = audit(tmp_path, batch_norm(at("gain", 64)))

    assert accounts(ledger)["parameter"] == 16
    assert accounts(ledger)[ORPHANED] == 84
    assert sum(accounts(ledger).values()) == ledger.file_nbytes
    assert findings(ledger)["external-orphaned"] == (
        "84 bytes of external files belong to no tensor",
        ("w.bin: 64 bytes at offset 0", "w.bin: 20 bytes at offset 80"),
    )


def test_zeros_between_tensors_and_at_the_end_are_padding(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\1" * 16 + bytes(48) + b"\1" * 16 + bytes(100))

    ledger = audit(tmp_path, batch_norm(at("gain"), at("shift", 64)))

    assert (accounts(ledger)["parameter"], accounts(ledger)[PADDING], accounts(ledger)[ORPHANED]) == (
        32,
        148,
        0,
    )
    assert "external-orphaned" not in findings(ledger)


@pytest.mark.parametrize(
    ("length", "account"),
    [(1, PADDING), (ALIGNMENT - 1, PADDING), (ALIGNMENT, ORPHANED), (200_000, ORPHANED)],
)
def test_zeros_are_padding_up_to_what_an_alignment_takes(tmp_path, length, account):
    (tmp_path / "w.bin").write_bytes(b"\1" * 16 + bytes(length))

    assert accounts(audit(tmp_path, batch_norm(at("gain"))))[account] == length


def test_one_byte_that_is_no_zero_makes_a_gap_an_orphan(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\1" * 16 + bytes(50) + b"\1" + bytes(50))

    assert accounts(audit(tmp_path, batch_norm(at("gain"))))[ORPHANED] == 101


def test_file_of_which_nothing_is_claimed_is_orphaned_as_a_whole(tmp_path):
    fill(tmp_path, 40)

    ledger = audit(tmp_path, batch_norm(external("gain", [0], location="w.bin")))

    assert accounts(ledger)[ORPHANED] == 40
    assert findings(ledger)["external-orphaned"][1] == ("w.bin: 40 bytes at offset 0",)


def test_empty_file_has_nothing_to_book(tmp_path):
    (tmp_path / "w.bin").touch()

    ledger = audit(tmp_path, batch_norm(external("gain", [0], location="w.bin")))

    assert [file.nbytes for file in ledger.model.files[1:]] == [0]
    assert accounts(ledger)[ORPHANED] == 0


# bytes claimed by several tensors


def test_range_that_two_tensors_share_is_booked_once_to_the_first(tmp_path):
    fill(tmp_path, 16)

    ledger = audit(tmp_path, batch_norm(at("mean"), at("gain")))

    assert (accounts(ledger)["buffer"], accounts(ledger)["parameter"]) == (16, 0)
    assert (ledger.stored_nbytes, ledger.shared_nbytes) == (32, 16)
    assert "external-overlap" not in findings(ledger)


def test_range_that_many_share_is_shared_by_all_but_one(tmp_path):
    fill(tmp_path, 16)

    ledger = audit(tmp_path, batch_norm(at("mean"), at("gain"), at("shift"), at("variance")))

    assert (accounts(ledger)["buffer"], ledger.stored_nbytes, ledger.shared_nbytes) == (16, 64, 48)


def test_ranges_that_overlap_in_part_are_booked_by_the_byte(tmp_path):
    fill(tmp_path, 40)

    ledger = audit(tmp_path, batch_norm(at("gain", 8), at("mean", 16), at("variance", 0)))

    # gain claims bytes 8 to 24; mean keeps 24 to 32, variance 0 to 8; no tensor claims 32 to 40
    assert (accounts(ledger)["parameter"], accounts(ledger)["buffer"]) == (16, 16)
    assert (accounts(ledger)[ORPHANED], ledger.shared_nbytes) == (8, 16)
    assert findings(ledger)["external-overlap"] == (
        "2 tensors begin within the external data of another; their bytes are booked once",
        ("gain and mean", "variance and gain"),
    )


def test_range_around_another_gets_both_ends(tmp_path):
    fill(tmp_path, 48)

    ledger = audit(
        tmp_path,
        batch_norm(at("mean", 16), external("gain", [12], location="w.bin", offset=0, length=48)),
    )

    assert (accounts(ledger)["buffer"], accounts(ledger)["parameter"]) == (16, 32)
    assert ledger.shared_nbytes == 16


def test_ranges_that_touch_do_not_overlap(tmp_path):
    fill(tmp_path, 32)

    ledger = audit(tmp_path, batch_norm(at("gain", 16), at("mean", 0)))

    assert (ledger.shared_nbytes, accounts(ledger)[ORPHANED]) == (0, 0)
    assert "external-overlap" not in findings(ledger)


def test_the_same_range_of_two_files_is_two_ranges(tmp_path):
    fill(tmp_path, 16)
    fill(tmp_path, 16, "v.bin")

    ledger = audit(tmp_path, batch_norm(at("gain"), at("shift", location="v.bin")))

    assert (accounts(ledger)["parameter"], ledger.shared_nbytes) == (32, 0)


def test_two_names_of_one_file_are_one_file(tmp_path):
    fill(tmp_path, 16)
    (tmp_path / "link.bin").symlink_to("w.bin")

    ledger = audit(tmp_path, batch_norm(at("gain"), at("shift", location="link.bin")))

    assert (accounts(ledger)["parameter"], ledger.shared_nbytes) == (16, 16)
    assert len(ledger.model.files) == 2


def test_model_that_is_its_own_external_data_books_no_byte_twice(tmp_path):
    ledger = audit(tmp_path, batch_norm(at("gain", location="model.onnx")))

    assert sum(accounts(ledger).values()) == (tmp_path / "model.onnx").stat().st_size


def test_external_tensor_with_inline_bytes_too_books_both_files(tmp_path):
    fill(tmp_path, 16)
    odd = at("gain")
    odd.raw_data = np.zeros(4, dtype="f4").tobytes()

    ledger = audit(tmp_path, batch_norm(odd))

    assert (accounts(ledger)["parameter"], accounts(ledger)[ORPHANED]) == (16, 16)
    assert sum(accounts(ledger).values()) == ledger.file_nbytes


def test_short_file_books_what_it_has(tmp_path):
    fill(tmp_path, 10)

    ledger = audit(tmp_path, batch_norm(at("gain"), at("mean", 4)))

    assert (accounts(ledger)["parameter"], ledger.shared_nbytes, ledger.stored_nbytes) == (10, 6, 16)


def test_sparse_tensor_with_external_values_books_its_indices_in_the_model(tmp_path):
    fill(tmp_path, 12)
    proto = batch_norm()
    indices = onnx.numpy_helper.from_array(np.array([0, 2, 3], dtype="i8"))
    proto.graph.sparse_initializer.append(
        onnx.SparseTensorProto(values=external("gain", [3], location="w.bin"), indices=indices, dims=[4])
    )

    ledger = audit(tmp_path, proto)

    assert accounts(ledger)["parameter"] == 12 + 24
    assert accounts(ledger)[ORPHANED] == 0


def test_external_indices_of_a_sparse_tensor_are_claimed_by_nobody(tmp_path):
    fill(tmp_path, 36)
    values = external("gain", [3], location="w.bin", offset=24)
    indices = external("", [3], TensorProto.INT64, location="w.bin")
    proto = batch_norm()
    proto.graph.sparse_initializer.add(values=values, indices=indices, dims=[4])

    ledger = audit(tmp_path, proto)

    assert (accounts(ledger)["parameter"], accounts(ledger)[ORPHANED]) == (12, 24)


def test_empty_tensors_claim_nothing(tmp_path):
    fill(tmp_path, 16)

    ledger = audit(tmp_path, batch_norm(at("gain", 4, numel=0), at("mean")))

    assert (accounts(ledger)["buffer"], ledger.shared_nbytes) == (16, 0)
    assert "external-overlap" not in findings(ledger)


# any ranges


def entry(role: Role, offset: int, length: int) -> Entry:
    extent = Extent("/w.bin", offset, length)
    tensor = StoredTensor(
        f"w{offset}", (), Carrier.INITIALIZER, DType.UINT8, (length,), length, length, NoPayload(), extent
    )
    return Entry(tensor, role, "none", "", "none", (), 1, "Add", 0, length)


def booked(entries: Sequence[Entry], nbytes: int) -> Booked:
    files = (File("model.onnx", 0, "/model.onnx"), File("w.bin", nbytes, "/w.bin"))
    return book_bytes(Model("model.onnx", files, 8, (), "", ()), entries)


claims = st.lists(st.builds(entry, st.sampled_from(Role), st.integers(0, 30), st.integers(0, 20)), max_size=8)


@settings(derandomize=True, database=None, max_examples=500)
@given(claims)
def test_each_byte_goes_to_the_first_that_claims_it(entries):
    owner: dict[int, Role] = {}
    for one in entries:
        for place in range(one.tensor.extent.offset, one.tensor.extent.offset + one.tensor.extent.length):
            owner.setdefault(place, one.role)

    found = booked(entries, 50)

    for role in Role:
        assert accounts(found)[role.value] == sum(1 for other in owner.values() if other is role)
    assert sum(accounts(found).values()) == 50
    payload = sum(accounts(found)[role.value] for role in Role)
    assert payload + found.shared == sum(one.tensor.nbytes for one in entries)
    assert accounts(found)[PADDING] == 50 - len(
        owner
    )  # a file that cannot be read: short gaps count as padding


@settings(derandomize=True, database=None, max_examples=300)
@given(claims)
def test_neighbours_are_reported_where_one_begins_within_another_that_is_not_the_same(entries):
    def place(one: Entry) -> tuple[int, int]:
        return one.tensor.extent.offset, one.tensor.extent.offset + one.tensor.extent.length

    found = booked(entries, 50).overlaps

    different = {place(one) for one in entries if one.tensor.nbytes}
    expected = any(a != b and a[0] <= b[0] < a[1] for a in different for b in different)
    assert bool(found) is expected
    for first, second in found:
        assert place(first)[0] <= place(second)[0] < place(first)[1]
        assert place(first) != place(second)


def test_gaps_are_reported_by_file_offset_and_length(tmp_path):
    ledger = audit(tmp_path, batch_norm())
    model = dataclasses.replace(
        ledger.model, files=(*ledger.model.files, File("w.bin", 200_000, "/w.bin")), sources={}
    )

    found = book_bytes(model, [entry(Role.BUFFER, 100_000, 10)])

    assert found.orphans == (Gap("/w.bin", 0, 100_000), Gap("/w.bin", 100_010, 99_990))


def test_payload_that_claims_more_than_there_is_is_a_defect_and_no_result():
    tensor = dataclasses.replace(entry(Role.BUFFER, 0, 10).tensor, nbytes=5)
    odd = dataclasses.replace(entry(Role.BUFFER, 0, 10), tensor=tensor)

    with pytest.raises(LedgerError, match="claim more bytes than the files have"):
        book_bytes(Model("m", (File("m", 0),), 8, (), "", ()), [odd])
