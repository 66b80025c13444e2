"""Protobuf fields are found in a file, and only the bytes around them are read."""

from __future__ import annotations

import random

import numpy as np
import pytest
from encoding import (
    FIXED32,
    FIXED64,
    LENGTH,
    UNKNOWN_FIELDS,
    VARINT,
    block,
    group,
    integer,
    key,
    varint,
)
from memory import MemoryFile

from analyzer.errors import ModelReadError
from analyzer.read.wire import BrokenMessageError, Window, decode_varints
from analyzer.read.wire import varint as read_varint

STEPS = [1, 7, 4096]


def window(content: bytes, step: int = 1 << 14) -> Window:
    return Window(MemoryFile(content, step))


def fields(content: bytes, step: int = 1 << 14) -> list[tuple[int, int, bytes]]:
    """Return (number, wire type, content) of each field."""
    found = window(content, step).fields(0, len(content))
    return [(field.number, field.wire, content[field.start : field.end]) for field in found]


# fields


@pytest.mark.parametrize("step", STEPS)
def test_fields_of_every_wire_type_are_found_in_file_order(step):
    content = (
        integer(1, 300)
        + key(2, FIXED64)
        + b"12345678"
        + block(3, "text")
        + key(4, FIXED32)
        + b"1234"
        + block(5)
    )

    assert fields(content, step) == [
        (1, VARINT, b"\xac\x02"),
        (2, FIXED64, b"12345678"),
        (3, LENGTH, b"text"),
        (4, FIXED32, b"1234"),
        (5, LENGTH, b""),
    ]


def test_field_begins_at_its_key_and_its_content_after_the_length():
    content = integer(1, 1) + block(2, "text")

    (_, found) = window(content).fields(0, len(content))

    assert (found.at, found.start, found.end) == (2, 4, 8)


def test_message_of_no_bytes_has_no_fields():
    assert fields(b"") == []


@pytest.mark.parametrize("step", STEPS)
def test_keys_and_lengths_may_have_more_bytes_than_they_need(step):
    content = b"\x8a\x80\x00" + b"\x84\x80\x80\x00" + b"text" + b"\x90\x00" + b"\x85\x00"

    assert fields(content, step) == [(1, LENGTH, b"text"), (2, VARINT, b"\x85\x00")]


def test_highest_field_number_is_read():
    assert fields(key((1 << 29) - 1, VARINT) + b"\x01") == [((1 << 29) - 1, VARINT, b"\x01")]


@pytest.mark.parametrize("step", STEPS)
def test_group_is_one_field_with_all_that_is_in_it(step):
    inside = (
        integer(1, 5),
        block(2, "x" * 30),
        key(3, FIXED32) + bytes(4),
        key(4, FIXED64) + bytes(8),
        group(5),
    )
    content = group(9, *inside) + integer(1, 1)

    assert [(number, wire) for number, wire, _ in fields(content, step)] == [(9, 3), (1, VARINT)]


def test_groups_within_groups_are_skipped_to_protobufs_own_depth():
    def nested(depth: int) -> bytes:
        return key(1, 3) * depth + key(1, 4) * depth

    assert len(fields(nested(100))) == 1
    with pytest.raises(BrokenMessageError, match="groups nested deeper than 100"):
        fields(nested(101))


def test_twenty_thousand_groups_within_each_other_are_refused_without_recursion():
    with pytest.raises(BrokenMessageError, match="groups nested deeper"):
        fields(key(1, 3) * 20_000)


# bytes that are no message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x00\x00", "field number 0"),
        (key(1 << 29, VARINT) + b"\0", f"field number {1 << 29}"),
        (b"\x0e", "wire type 6"),
        (b"\x0f", "wire type 7"),
        (key(1, 4), "wire type 4"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "a number of more than 10 bytes"),
        (block(1, "text")[:-1], "a field of 6 bytes"),
        (key(1, FIXED64) + bytes(7), "a field of 9 bytes"),
        (key(1, LENGTH) + varint((1 << 63) - 1) + b"abc", "a field of 9,223,372,036,854,775,817 bytes"),
        (key(1, LENGTH) + varint(-1) + b"abc", "a field of 18,446,744,073,709,551,626 bytes"),
        (b"\x08", "it ends there"),
        (b"\x80", "it ends there"),
        (b"\x08\x80\x80", "it ends there"),
        (key(1, 3) + integer(1, 1), "it ends there"),
        (key(1, 3) + key(2, 4), "a group with the end of another"),
        (key(1, 3) + b"\x0e", "wire type 6"),
        (key(1, 3) + block(2, "text")[:-1] + key(1, 4), "a group without an end|it ends there"),
    ],
)
@pytest.mark.parametrize("step", STEPS)
def test_bytes_that_are_no_message_are_refused_by_their_place(content, reason, step):
    with pytest.raises(BrokenMessageError, match=rf"\[not-onnx\] no protobuf message at byte 2: ({reason})"):
        fields(integer(1, 1) + content, step)


def test_field_longer_than_the_message_around_it_is_refused():
    content = block(1, key(2, LENGTH), varint(100)) + bytes(200)

    (outer, *_) = window(content[:4]).fields(0, 4)

    with pytest.raises(BrokenMessageError, match="a field of 102 bytes"):
        list(window(content).fields(outer.start, outer.end))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**14 - 1, 2**14, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("longer", [0, 1, 9])
def test_numbers_of_any_length_are_read(number, longer):
    encoded = varint(number, longer)

    assert read_varint(b"before" + encoded + b"after", 6) == (number, 6 + len(encoded))


def test_number_is_modulo_two_to_the_sixty_fourth():
    assert read_varint(b"\xff" * 9 + b"\x7f", 0) == (2**64 - 1, 10)


# packed lists


def test_packed_numbers_are_what_each_alone_would_be():
    chance = random.Random(7)
    numbers = [chance.getrandbits(chance.randrange(1, 65)) for _ in range(1000)]
    content = b"".join(varint(number, chance.choice((0, 0, 1, 3))) for number in numbers)

    assert decode_varints(np.frombuffer(content, np.uint8)).tolist() == numbers


def test_packed_list_of_nothing_is_empty():
    assert decode_varints(np.zeros(0, np.uint8)).tolist() == []


@pytest.mark.parametrize("content", [b"\x80", b"\x01\xff", b"\x80" * 11 + b"\x01"])
def test_packed_list_that_ends_within_a_number_or_has_a_long_one_is_an_error(content):
    with pytest.raises(ValueError, match=r"ends within a number|more than 10 bytes"):
        decode_varints(np.frombuffer(content, np.uint8))


# the window


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "places", [[(0, 10), (5, 8), (900, 1000), (0, 1000), (999, 1000)], [(3, 3), (1000, 1000)]]
)
def test_window_gives_the_bytes_of_any_place_in_any_order(step, places):
    content = bytes(index % 251 for index in range(1000))
    around = window(content, step)

    assert [around.take(start, end) for start, end in places] == [content[start:end] for start, end in places]


def test_content_that_is_jumped_over_is_not_read():
    step = 1 << 10
    source = MemoryFile(block(1, bytes(1 << 20)) + block(2, bytes(1 << 20)) + integer(3, 1), step)

    found = list(Window(source).fields(0, source.nbytes))

    assert [field.number for field in found] == [1, 2, 3]
    assert sum(length for _, length in source.reads) <= 4 * step


def test_window_grows_where_everything_is_read_and_shrinks_after_a_jump():
    content = integer(1, 1) * 50_000 + block(2, bytes(1 << 20)) + integer(3, 1) * 10
    source = MemoryFile(content, 64)

    list(Window(source).fields(0, source.nbytes))

    lengths = [length for _, length in source.reads]
    assert max(lengths) <= 128 * 64
    assert len(lengths) < 100
    assert lengths[-1] <= 64


def test_file_that_became_shorter_is_an_error_and_no_short_answer():
    class Shorter(MemoryFile):
        nbytes = 100

    with pytest.raises(ModelReadError, match="ended at byte 20 while it was read"):
        Window(Shorter(integer(1, 1) * 10)).take(5, 50)


# runs of like fields


def run(content: bytes, longest: int = 1 << 12, step: int = 1 << 14) -> list[int]:
    around = window(content, step)
    first = next(around.fields(0, len(content)))
    return [end for _, end in around.run(first, len(content), longest)]


def test_run_ends_before_a_field_of_another_number():
    assert run(block(1, "ab") + block(1, "c") + integer(2, 1) + block(1, "d" * 30)) == [4, 7]


def test_run_ends_before_a_field_that_is_too_long():
    assert run(block(1, "ab") * 2 + block(1, "x" * 200), longest=100) == [4, 8]


def test_run_has_no_more_than_so_many_fields():
    assert len(run(block(1) * 10_000)) == 4096


def test_first_field_of_a_run_may_have_any_length():
    assert run(block(1, "x" * 9000) + block(1, "y") * 2, longest=100)[0] == len(block(1, "x" * 9000))


@pytest.mark.parametrize("step", STEPS)
def test_runs_one_after_another_take_every_field_once(step):
    content = block(1, "ab") * 100 + block(1, "x" * 300) + block(1) * 5 + block(2, "other")
    around = window(content, step)

    ends, position = [], 0
    while position < len(content):
        first = next(around.fields(position, len(content)))
        taken = around.run(first, len(content), 1 << 12)
        ends += [end for _, end in taken]
        position = ends[-1]

    assert ends == [field.end for field in window(content).fields(0, len(content))]


def test_unknown_fields_of_the_tests_are_one_of_each_wire_type():
    assert [fields(content)[0][1] for content in UNKNOWN_FIELDS] == [0, 1, 2, 3, 5]
