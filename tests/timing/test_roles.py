"""Purposes of inputs, and roles of their axes."""

from __future__ import annotations

import pytest

from analyzer.model import ValueType
from analyzer.model.dtypes import DType
from analyzer.timing.inputs.roles import Purpose, Use, assign_roles, is_opaque

Dims = tuple[int | str | None, ...]


def input_value(name: str, dims: Dims, dtype: str = "INT64") -> ValueType:
    return ValueType(name, "tensor", DType[dtype], dims)


def roles(*signature: ValueType, **uses: Use) -> dict[str, tuple[str, tuple[str, ...]]]:
    parts, _ = assign_roles(signature, uses)
    return {part.value_type.name: (part.purpose.value, part.roles) for part in parts}


IDS = input_value("input_ids", ("s18", "s41"))
KEYS = input_value("past_key_values.0.key", ("b", 4, "p", 8), "FLOAT")


@pytest.mark.parametrize(
    ("name", "dtype", "dims", "purpose", "found"),
    [
        ("input_ids", "INT64", (None, None), "tokens", "batch sequence"),
        ("input_ids", "INT32", (None,), "tokens", "sequence"),
        ("serving_default_input_ids:0", "INT32", (None, None), "tokens", "batch sequence"),
        ("token_type_ids", "INT64", (None, None), "segments", "batch sequence"),
        ("position_ids", "INT64", (None, None), "positions", "batch sequence"),
        ("cache_position", "INT64", (None,), "positions", "sequence"),
        ("attention_mask", "BOOL", (None, None), "mask", "batch sequence"),
        ("attention_mask", "FLOAT", (None, 1, None, None), "mask", "batch heads sequence sequence"),
        ("pixel_mask", "INT64", (None, None, None), "mask", "batch height width"),
        ("pixel_values", "FLOAT", (None, 3, None, None), "image", "batch channels height width"),
        ("pixel_values", "FLOAT", (None, 8, 3, None, None), "image", "batch frames channels height width"),
        ("image", "UINT8", (None, None, None, 3), "image", "batch height width channels"),
        ("image", "UINT8", (None, None, 3), "image", "height width channels"),
        ("data_0", "FLOAT", (None, 3, 224, 224), "image", "batch channels height width"),
        ("input_features", "FLOAT", (None, 80, None), "spectrum", "batch features frames"),
        ("input_values", "FLOAT", (None, None), "waveform", "batch samples"),
        ("audio", "FLOAT", (None,), "waveform", "samples"),
        ("encoder_hidden_states", "FLOAT", (None, None, 64), "hidden", "batch encoder_sequence features"),
        ("inputs_embeds", "FLOAT", (None, None, 64), "hidden", "batch sequence features"),
        ("past_key_0", "FLOAT", (None, 4, None, 8), "cache", "batch heads past features"),
        ("cache_k", "FLOAT16", (None, None, 8), "cache", "batch past features"),
        ("past_0", "FLOAT", (2, None, 4, None, 8), "cache", "other batch heads past features"),
        ("past.1.encoder.key", "FLOAT", (1, 4, None, 8), "cache", "batch heads encoder_sequence features"),
        ("past.1.decoder.key", "FLOAT", (1, 4, None, 8), "cache", "batch heads past features"),
        ("past.0.key", "FLOAT", ("batch_x_heads", 64, "past_length"), "cache", "batch other past"),
        ("conv_states", "FLOAT", ("s1", 1536, 4), "state", "batch other features"),
        ("use_cache_branch", "BOOL", (1,), "branch", "batch"),
        ("use_cache_branch", "BOOL", (), "branch", ""),
        ("h0", "FLOAT", (2, 1, 128), "state", "other batch features"),
        ("state", "FLOAT", (2, None, 128), "state", "other batch features"),
        ("X", "FLOAT", (None, 4), "other", "batch features"),
        ("X", "FLOAT", (None, None, 4), "other", "batch sequence features"),
        ("X", "STRING", (None,), "other", "batch"),
        ("X", "DOUBLE", (), "other", ""),
    ],
)
def test_purpose_and_roles_come_from_the_name_the_type_and_the_place(name, dtype, dims, purpose, found):
    assert roles(input_value(name, dims, dtype))[name] == (purpose, tuple(found.split()))


def test_names_of_axes_show_their_role_where_they_have_one():
    found = roles(input_value("x", ("image_batch", "seq_len", "hidden_size"), "FLOAT"))

    assert found["x"][1] == ("batch", "sequence", "features")
    assert roles(input_value("x", ("num_frames", "time", "num_channels"), "FLOAT"))["x"][1] == (
        "frames",
        "frames",
        "channels",
    )


def test_index_without_a_name_is_tokens_and_beside_it_what_indexes_nothing_is_a_mask():
    found = roles(
        input_value("2", ("3", "4")), input_value("5", ("6", "4")), input_value("7", ()), **{"2": Use(rows=9)}
    )

    assert [purpose for purpose, _ in found.values()] == ["tokens", "mask", "other"]


def test_mask_beside_a_cache_is_as_long_as_past_and_sequence():
    mask = input_value("attention_mask", ("b", "t"))

    assert roles(IDS, KEYS, mask)["attention_mask"][1] == ("batch", "total_sequence")
    assert roles(IDS, mask)["attention_mask"][1] == ("batch", "sequence")


def test_where_encoder_and_decoder_are_fed_the_plain_sequence_is_the_encoders():
    found = roles(
        IDS,
        input_value("attention_mask", ("b", "s")),
        input_value("decoder_input_ids", ("b", "t")),
        input_value("decoder_attention_mask", ("b", "u")),
        input_value("encoder_outputs.last_hidden_state", ("b", "s", 8), "FLOAT"),
        KEYS,
    )

    assert [found_roles[1] for _, found_roles in found.values() if len(found_roles) < 4] == [
        "sequence",
        "sequence",
        "decoder_sequence",
        "decoder_total",
        "sequence",
    ]


def test_sampling_rate_makes_the_input_beside_it_sound():
    found = roles(input_value("input", (None, "sequence"), "FLOAT"), input_value("sr", ()))

    assert found["input"] == ("waveform", ("batch", "samples"))


def test_inputs_that_are_no_tensors_of_known_rank_have_no_roles():
    unknown = ValueType("x", "tensor", DType.FLOAT, None)
    sequence = ValueType("y", "sequence", DType.UNDEFINED, None)

    assert roles(unknown, sequence) == {}


@pytest.mark.parametrize(
    ("axis", "opaque"), [("s18", True), ("12", True), ("unk__5", True), ("batch", False)]
)
def test_names_that_exporters_make_up_are_opaque(axis, opaque):
    assert is_opaque(axis) == opaque


def test_names_of_a_megabyte_are_no_trouble():
    name = "past_key_values." * 65_536

    assert roles(input_value(name, (name, None, name, 8), "FLOAT"))[name][0] == Purpose.CACHE
