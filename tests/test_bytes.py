"""Every byte on disk is booked once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from models import audit, external, ramp, text_model
from onnx import TensorProto

from analyzer.bytes import GRAPH_STRUCTURE, UNCLAIMED
from analyzer.ledger import Ledger


def accounts(ledger: Ledger) -> dict[str, int]:
    return {account.name: account.nbytes for account in ledger.accounts}


def batch_norm(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    """`gain` and `shift` are learned, `mean` and `variance` are buffers."""
    proto = text_model("""
        g (float[1,4,2] x) => (float[1,4,2] y) { y = BatchNormalization(x, gain, shift, mean, variance) }
    """)
    proto.graph.initializer.extend(tensors)
    return proto


def shared_file(folder: Path, nbytes: int) -> None:
    (folder / "w.bin").write_bytes(bytes(range(nbytes)))


def test_inline_payload_and_the_rest_sum_to_the_file(tmp_path):
    proto = text_model("g (float[2,3] x) => (float[2,5] y) { y = MatMul(x, w) }", {"w": ramp(3, 5)})

    ledger = audit(tmp_path, proto)

    size = (tmp_path / "model.onnx").stat().st_size
    assert accounts(ledger) == {
        "parameter": 60,
        "buffer": 0,
        "quantization": 0,
        "constant": 0,
        "unattributed": 0,
        GRAPH_STRUCTURE: size - 60,
        UNCLAIMED: 0,
    }


def test_bytes_of_external_files_that_nobody_claims_are_booked_as_such(tmp_path):
    shared_file(tmp_path, 100)

    ledger = audit(tmp_path, batch_norm(external("gain", [4], location="w.bin", offset=64)))

    assert accounts(ledger)["parameter"] == 16
    assert accounts(ledger)[UNCLAIMED] == 84
    assert sum(accounts(ledger).values()) == ledger.file_nbytes


def test_range_that_two_tensors_share_is_booked_once_to_the_first(tmp_path):
    shared_file(tmp_path, 16)

    ledger = audit(
        tmp_path,
        batch_norm(external("mean", [4], location="w.bin"), external("gain", [4], location="w.bin")),
    )

    assert (accounts(ledger)["buffer"], accounts(ledger)["parameter"]) == (16, 0)
    assert ledger.stored_nbytes == 32


def test_ranges_that_overlap_in_part_are_booked_by_the_byte(tmp_path):
    shared_file(tmp_path, 40)

    ledger = audit(
        tmp_path,
        batch_norm(
            external("gain", [4], location="w.bin", offset=8),
            external("mean", [4], location="w.bin", offset=16),
            external("variance", [4], location="w.bin", offset=0),
        ),
    )

    # gain has 8 to 24; mean is left with 24 to 32, variance with 0 to 8; 32 to 40 is nobody's
    assert (accounts(ledger)["parameter"], accounts(ledger)["buffer"]) == (16, 16)
    assert accounts(ledger)[UNCLAIMED] == 8


def test_range_around_another_gets_both_ends(tmp_path):
    shared_file(tmp_path, 48)

    ledger = audit(
        tmp_path,
        batch_norm(
            external("mean", [4], location="w.bin", offset=16),
            external("gain", [4], location="w.bin", offset=0, length=48),
        ),
    )

    assert (accounts(ledger)["buffer"], accounts(ledger)["parameter"]) == (16, 32)


def test_the_same_range_of_two_files_is_two_ranges(tmp_path):
    shared_file(tmp_path, 16)
    (tmp_path / "v.bin").write_bytes(bytes(16))

    ledger = audit(
        tmp_path,
        batch_norm(external("gain", [4], location="w.bin"), external("shift", [4], location="v.bin")),
    )

    assert accounts(ledger)["parameter"] == 32


def test_two_names_of_one_file_are_one_file(tmp_path):
    shared_file(tmp_path, 16)
    (tmp_path / "link.bin").symlink_to("w.bin")

    ledger = audit(
        tmp_path,
        batch_norm(external("gain", [4], location="w.bin"), external("shift", [4], location="link.bin")),
    )

    assert accounts(ledger)["parameter"] == 16
    assert len(ledger.model.files) == 2


def test_model_that_is_its_own_external_data_books_no_byte_twice(tmp_path):
    proto = batch_norm(external("gain", [4], location="model.onnx"))

    ledger = audit(tmp_path, proto)

    assert sum(accounts(ledger).values()) == (tmp_path / "model.onnx").stat().st_size


def test_external_tensor_with_inline_bytes_too_books_both_files(tmp_path):
    shared_file(tmp_path, 16)
    odd = external("gain", [4], location="w.bin")
    odd.raw_data = np.zeros(4, dtype="f4").tobytes()

    ledger = audit(tmp_path, batch_norm(odd))

    assert sum(accounts(ledger).values()) == ledger.file_nbytes


def test_sparse_tensor_with_external_values_books_its_indices_in_the_model(tmp_path):
    shared_file(tmp_path, 12)
    proto = batch_norm()
    indices = onnx.numpy_helper.from_array(np.array([0, 2, 3], dtype="i8"))
    proto.graph.sparse_initializer.append(
        onnx.SparseTensorProto(values=external("gain", [3], location="w.bin"), indices=indices, dims=[4])
    )

    ledger = audit(tmp_path, proto)

    assert accounts(ledger)["parameter"] == 12 + 24
    assert accounts(ledger)[UNCLAIMED] == 0


def test_empty_tensors_claim_nothing(tmp_path):
    shared_file(tmp_path, 16)

    ledger = audit(
        tmp_path,
        batch_norm(
            external("gain", [0], location="w.bin", offset=4),
            external("mean", [4], TensorProto.FLOAT, location="w.bin"),
        ),
    )

    assert accounts(ledger)["buffer"] == 16
