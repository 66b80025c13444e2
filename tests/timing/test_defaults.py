"""Default sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzer.model import ValueType
from analyzer.model.dtypes import DType
from analyzer.timing.inputs.roles import KnownInput, Lookups, Purpose, Use
from analyzer.timing.inputs.sizes import Defaults, read_settings


def part(purpose: str, rank: int = 4) -> KnownInput:
    return KnownInput(
        ValueType("x", "tensor", DType.FLOAT, (None,) * rank), Purpose(purpose), ("other",) * rank
    )


def size(purpose: str, role: str, position: int = 0, past: int = 0, use: Use | None = None, **known) -> int:
    settings, positions = known.pop("settings", {}), known.pop("positions", None)
    lookups = Lookups({"x": use or Use()}, positions)
    found, reason = Defaults(lookups, settings, **known).size(part(purpose), position, role, past)
    assert reason
    return found


@pytest.mark.parametrize(
    ("purpose", "role", "expected"),
    [
        ("tokens", "batch", 1),
        ("tokens", "sequence", 128),
        ("tokens", "decoder_sequence", 128),
        ("cache", "past", 0),
        ("image", "channels", 3),
        ("image", "height", 224),
        ("image", "frames", 1),
        ("waveform", "channels", 1),
        ("waveform", "samples", 16_000),
        ("spectrum", "frames", 3_000),
        ("other", "features", 1),
        ("other", "other", 1),
    ],
)
def test_each_role_has_a_size_of_its_own(purpose, role, expected):
    assert size(purpose, role) == expected


def test_sequence_is_no_longer_than_the_position_table_or_the_room_of_a_cache():
    assert size("tokens", "sequence", positions=72) == 72
    assert size("tokens", "sequence", positions=512) == 128
    assert size("tokens", "sequence", positions=72, room=16) == 16


def test_after_a_past_one_token_follows():
    assert size("tokens", "sequence", past=20) == 1
    assert size("tokens", "decoder_sequence", past=20, has_decoder=True) == 1
    assert size("tokens", "sequence", past=20, has_decoder=True) == 128
    assert size("tokens", "sequence", past=16, room=16) == 16


def test_model_that_listens_to_a_stream_is_given_a_piece():
    assert size("waveform", "samples", is_stream=True) == 512


def test_weights_show_features_and_channels():
    assert size("hidden", "features", position=3, use=Use(features=64)) == 64
    assert size("hidden", "features", position=2, use=Use(features=64)) == 1
    assert size("image", "channels", use=Use(channels=1)) == 1
    assert size("spectrum", "features", position=1, use=Use(channels=80)) == 80


@pytest.mark.parametrize(
    ("purpose", "role", "settings", "expected"),
    [
        ("image", "height", {"image_size": 384}, 384),
        ("image", "width", {"image_size": [224, 256]}, 256),
        ("image", "width", {"image_size": "big"}, 224),
        ("image", "width", {"image_size": -4}, 224),
        ("image", "width", {"image_size": 10**12}, 224),
        ("image", "width", {"image_size": True}, 224),
        ("cache", "heads", {"num_key_value_heads": 4, "num_attention_heads": 8}, 4),
        ("cache", "features", {"head_dim": 64}, 64),
        ("mask", "heads", {"num_attention_heads": 8}, 1),
        ("hidden", "encoder_sequence", {"max_source_positions": 1500}, 1500),
        ("spectrum", "features", {"num_mel_bins": 80}, 80),
    ],
)
def test_settings_of_the_model_give_the_sizes_that_they_name(purpose, role, settings, expected):
    assert size(purpose, role, settings=settings) == expected


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_settings_are_those_beside_the_model_with_their_values(tmp_path):
    write(tmp_path / "config.json", {"vocab_size": 9, "vision_config": {"image_size": 32}, "text_config": 3})

    assert read_settings([tmp_path / "model.onnx"])["image_size"] == 32
    assert read_settings([tmp_path / "model.onnx"])["vocab_size"] == 9
    assert read_settings([]) == {}


def test_settings_above_a_folder_called_onnx_are_found(tmp_path):
    write(tmp_path / "config.json", {"image_size": 32})

    assert read_settings([tmp_path / "onnx" / "model.onnx"]) == {"image_size": 32}
    assert read_settings([tmp_path / "other" / "model.onnx"]) == {}


@pytest.mark.parametrize("content", ["", "[1]", "{", "\xff", "[" * 100_000, '{"a": ' + "1" * 5_000 + "}"])
def test_unreadable_settings_are_ignored(tmp_path, content):
    (tmp_path / "config.json").write_text(content, encoding="latin-1")

    assert read_settings([tmp_path / "model.onnx"]) == {}
