"""Sizes of all axes."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.errors import UsageError
from analyzer.model import ValueType
from analyzer.model.dtypes import DType
from analyzer.timing.inputs.roles import KnownInput, assign_roles
from analyzer.timing.inputs.sizes import RequestedSizes, size_axes
from analyzer.timing.record import Axis

Dims = tuple[int | str | None, ...]


def input_value(name: str, *dims: int | str | None, dtype: str = "INT64") -> ValueType:
    return ValueType(name, "tensor", DType[dtype], dims)


def default(part: KnownInput | None, position: int, role: str, past: int) -> tuple[int, str]:
    sizes = {"batch": 1, "sequence": 1 if past else 128, "past": 0}
    return sizes.get(role, 5), f"default of {role}"


def sized(signature: list[ValueType], *sizes: tuple[str, int], **options: Any) -> tuple[Axis, ...]:
    parts, sides = assign_roles(signature, {})
    return size_axes(parts, sides, RequestedSizes(sizes, **options), default)


def sizes_of(signature: list[ValueType], *sizes: tuple[str, int], **options: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for axis in sized(signature, *sizes, **options):
        found.setdefault(axis.input, []).append(axis.size)
    return found


BERT = [input_value("input_ids", "s18", "s41"), input_value("attention_mask", "s43", "s41")]
STATIC = [input_value("input_ids", 2, 11), input_value("attention_mask", 2, 11)]
CACHED = [
    input_value("input_ids", "batch", "seq"),
    input_value("attention_mask", "batch", "total_seq"),
    input_value("past_key_values.0.key", "batch", 4, "past_seq", 8, dtype="FLOAT"),
]


def test_every_axis_has_a_size_and_a_reason():
    assert sized([input_value("input_ids", 2, "s41")]) == (
        Axis("input_ids", 0, None, "batch", 2, "file"),
        Axis("input_ids", 1, "s41", "sequence", 128, "default of sequence"),
    )


def test_role_sizes_the_axes_of_all_inputs_whatever_they_are_called():
    assert sizes_of(BERT, ("batch", 8), ("sequence", 16)) == {"input_ids": [8, 16], "attention_mask": [8, 16]}


def test_axes_of_one_name_have_one_size():
    assert sizes_of(BERT, ("input_ids.1", 9)) == {"input_ids": [1, 9], "attention_mask": [1, 9]}


def test_role_that_is_known_of_one_input_is_the_same_of_another():
    axes = sized(BERT, ("s18", 4))

    assert [(axis.size, axis.reason) for axis in axes if axis.role == "batch"] == [
        (4, "--shape s18"),
        (4, "as input_ids"),
    ]
    assert sizes_of([input_value("input_ids", 3, 4), input_value("attention_mask", None, None)])[
        "attention_mask"
    ] == [
        3,
        4,
    ]


def test_axis_that_is_named_keeps_its_size_beside_its_role():
    assert sizes_of(BERT, ("s18", 4), ("batch", 2)) == {"input_ids": [4, 128], "attention_mask": [2, 128]}


def test_fixed_axis_may_be_given_the_size_that_it_has_and_no_other():
    assert sizes_of(STATIC, ("batch", 2), ("input_ids.1", 11)) == {
        "input_ids": [2, 11],
        "attention_mask": [2, 11],
    }
    with pytest.raises(UsageError, match=r"^all sizes of this file are fixed; leave --shape out$"):
        sized(STATIC, ("batch", 3))
    with pytest.raises(UsageError, match=r"^all sizes of this file are fixed"):
        sized(STATIC, ("nosuch", 3))
    partly = [input_value("input_ids", "b", 11)]
    with pytest.raises(
        UsageError, match=r"^the file fixes axis 1 of input_ids at 11; leave sequence out of --shape$"
    ):
        sized(partly, ("sequence", 3))


@pytest.mark.parametrize(
    "sizes",
    [
        [("input_ids.1", 9), ("s41", 8)],
        [("input_ids.1", 9), ("attention_mask.1", 8)],
        [("s41", 9), ("sequence", 8)],
        [("sequence", 9), ("decoder_sequence", 8)],
    ],
)
def test_sizes_that_contradict_each_other_are_refused(sizes):
    with pytest.raises(UsageError, match=r"make them agree|give sequence one size"):
        sized(BERT, *sizes)


def test_unknown_name_is_refused_with_what_there_is():
    with pytest.raises(UsageError, match=r"--shape s7: .*input_ids \(s18: batch, s41: sequence\)"):
        sized(BERT, ("s7", 1))


@pytest.mark.parametrize("way", [{"past": 20}, {"sizes": [("past", 20)]}, {"sizes": [("past_seq", 20)]}])
def test_mask_is_as_long_as_the_past_and_the_sequence(way):
    found = sizes_of(CACHED, *way.get("sizes", []), past=way.get("past"))

    assert found == {
        "input_ids": [1, 1],
        "attention_mask": [1, 21],
        "past_key_values.0.key": [1, 4, 20, 8],
    }


def test_without_a_past_the_cache_is_empty():
    assert sizes_of(CACHED)["past_key_values.0.key"] == [1, 4, 0, 8]
    assert sizes_of(CACHED)["attention_mask"] == [1, 128]


def test_sum_that_is_given_leaves_the_rest():
    assert sizes_of(CACHED, ("total_seq", 30), ("seq", 10))["past_key_values.0.key"] == [1, 4, 20, 8]
    assert sizes_of(CACHED, ("total_seq", 30), ("past", 10))["input_ids"] == [1, 20]
    assert sizes_of(CACHED, ("total_seq", 30))["input_ids"] == [1, 30]


@pytest.mark.parametrize(
    ("axis", "size"),
    [
        ("past_seq + seq", 21),
        ("past_seq + 1", 21),
        ("past_sequence_length + sequence_length", 21),
        ("2*seq", 2),
    ],
)
def test_axis_that_is_called_by_a_sum_is_computed(axis, size):
    signature = [CACHED[0], input_value("attention_mask", "batch", axis), CACHED[2]]

    found = {axis.input: axis for axis in sized(signature, past=20) if axis.position == 1}

    assert (found["attention_mask"].size, found["attention_mask"].reason) == (size, axis)


def test_past_of_a_model_without_a_cache_and_two_pasts_are_refused():
    with pytest.raises(UsageError, match="--past: no input of the model is a past"):
        sized(BERT, past=3)
    with pytest.raises(UsageError, match="--past 3 contradicts --shape past 4"):
        sized(CACHED, ("past", 4), past=3)


def test_arrays_bind_axes_of_all_inputs():
    found = sized(BERT, arrays=(("input_ids", (3, 7)),))

    assert [(axis.size, axis.reason) for axis in found] == [
        (3, "--input"),
        (7, "--input"),
        (3, "as input_ids"),
        (7, "--input"),
    ]


def test_arrays_that_contradict_the_file_or_the_options_are_refused():
    with pytest.raises(
        UsageError, match="--input: axis 0 of input_ids would have 3, and the file fixes it to 2"
    ):
        sized(STATIC, arrays=(("input_ids", (3, 11)),))
    with pytest.raises(UsageError, match="--shape s41: axis 1 of input_ids would have 8, and --input has 7"):
        sized(BERT, ("s41", 8), arrays=(("input_ids", (3, 7)),))
    with pytest.raises(
        UsageError, match="--shape batch: axis 0 of input_ids would have 8, and --input has 3"
    ):
        sized(BERT, ("batch", 8), arrays=(("input_ids", (3, 7)),))


def test_encoder_and_decoder_have_sequences_of_their_own():
    signature = [input_value("input_ids", "a", "b"), input_value("decoder_input_ids", "a", "c")]

    found = sizes_of(signature, ("encoder_sequence", 6), ("decoder_sequence", 7))

    assert found == {"input_ids": [1, 6], "decoder_input_ids": [1, 7]}


def test_decoder_that_is_a_file_of_its_own_has_the_sequence_and_the_encoder_another():
    length = "encoder_sequence_length"
    signature = [
        input_value("encoder_attention_mask", "batch_size", length),
        input_value("input_ids", "batch_size", "decoder_sequence_length"),
        input_value("encoder_hidden_states", "batch_size", length, 64, dtype="FLOAT"),
        input_value(
            "past_key_values.0.decoder.key", "batch_size", 4, "past_decoder_sequence_length", 8, dtype="FLOAT"
        ),
        input_value("past_key_values.0.encoder.key", "batch_size", 4, f"{length}_out", 8, dtype="FLOAT"),
    ]

    found = sizes_of(signature, ("encoder_sequence", 6), past=9)

    assert list(found.values()) == [[1, 6], [1, 1], [1, 6, 64], [1, 4, 9, 8], [1, 4, 6, 8]]


def test_axis_of_an_input_of_no_known_purpose_does_not_keep_a_role_from_the_others():
    signature = [input_value("edges", 2, "e"), input_value("input_ids", "b", "s")]

    assert (
        sizes_of([input_value("X", 1, "n", dtype="FLOAT"), signature[1]], ("batch", 8))["input_ids"][0] == 8
    )
    with pytest.raises(UsageError, match="the file fixes axis 0 of X at 1; leave batch out of --shape"):
        sized([input_value("X", 1, "n", dtype="FLOAT")], ("batch", 8))


def test_names_that_are_numbers_are_sizes_unless_all_are():
    assert sizes_of([input_value("input_ids", "s1", "11")]) == {"input_ids": [1, 11]}
    assert sizes_of([input_value("2", "3", "4")]) == {"2": [1, 128]}


def test_negative_sizes_are_free_and_scalars_have_no_axes():
    assert sizes_of([input_value("input_ids", -1, -1), input_value("flag")]) == {"input_ids": [1, 128]}


def test_ten_thousand_inputs_are_sized_in_time():
    caches = [
        input_value(f"past_key_{index}", "b", 4, f"p{index}", 8, dtype="FLOAT") for index in range(5_000)
    ]
    masks = [input_value(f"mask_{index}", "b", f"m{index}") for index in range(5_000)]

    assert len(sized([*masks, *caches], past=3)) == 30_000
