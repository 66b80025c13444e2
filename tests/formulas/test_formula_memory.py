"""Bytes follow from the counts by arithmetic that can be done by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.formulas.counting import count_config
from analyzer.formulas.language import parse_expression
from analyzer.formulas.record import BLOCK, CacheSize, Formula, PartCount
from analyzer.formulas.rows import CacheBytes, Precision, cache_bytes, weigh

BERT_BASE = {"model_type": "bert", "architectures": ["BertModel"]}
LLAMA_2_70B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
}


def counted(config: dict[str, Any]) -> Formula:
    formula = count_config(config)
    assert formula is not None
    return formula


def part(each: int, vectors: int = 0, times: int = 1) -> PartCount:
    return PartCount("p", "t", times, each, vectors, times * each, "", "")


def cache(**more: Any) -> CacheSize:
    one = parse_expression("1")
    sizes = {"token": 10, "source_token": 0, "window": None, "context": None, "source_context": None}
    return CacheSize(token_expression=one, source_token_expression=one, **{**sizes, **more})


# weights


def test_bert_base_at_every_precision_by_hand() -> None:
    formula = counted(BERT_BASE)
    found = {footprint.precision.label: footprint.nbytes for footprint in weigh(formula)}
    # Matrices: words, positions, types; 12 times query, key, value, output and two of the feed-forward; pooler.
    matrices = (30_522 + 512 + 2) * 768 + 12 * (4 * 768**2 + 2 * 768 * 3072) + 768**2
    vectors = 2 * 768 + 12 * (4 * 768 + 3072 + 768 + 4 * 768) + 768

    assert matrices + vectors == formula.total == 109_482_240
    assert found["fp32"] == 437_928_960
    assert found["fp16"] == 218_964_480
    assert found["int8"] == matrices + 2 * vectors + 2 * matrices // 32
    assert found["4-bit"] == matrices // 2 + 2 * vectors + 2 * matrices // 32


def test_llama_2_70b_has_138_gb_at_fp16() -> None:
    formula = counted(LLAMA_2_70B)
    (fp16,) = (each for each in weigh(formula) if each.precision is Precision.FP16)

    assert formula.total == 68_976_648_192
    assert fp16.nbytes == 137_953_296_384


def test_terms_are_in_the_formulas_order_and_sum_to_the_whole() -> None:
    formula = counted(BERT_BASE)
    for footprint in weigh(formula):
        assert [name for name, _ in footprint.terms] == [term.name for term in formula.terms]
        assert footprint.nbytes == sum(nbytes for _, nbytes in footprint.terms)


@pytest.mark.parametrize(
    ("each", "vectors", "block", "int8", "int4"),
    [
        (0, 0, 32, 0, 0),
        (32, 0, 32, 32 + 2, 16 + 2),
        (33, 0, 32, 33 + 4, 17 + 4),  # 33 half bytes take 17 bytes, and a second block has its own scale
        (31, 0, 32, 31 + 2, 16 + 2),
        (64, 0, 64, 64 + 2, 32 + 2),
        (64, 0, 16, 64 + 8, 32 + 8),
        (8, 8, 32, 16, 16),  # vectors stay in fp16
        (40, 8, 32, 32 + 16 + 2, 16 + 16 + 2),
    ],
)
def test_blocks_have_a_scale_each(each: int, vectors: int, block: int, int8: int, int4: int) -> None:
    for times in (0, 1, 3):
        assert Precision.INT8.nbytes(part(each, vectors, times), block) == times * int8
        assert Precision.INT4.nbytes(part(each, vectors, times), block) == times * int4


@given(st.integers(0, 10**30), st.integers(0, 10**30), st.integers(0, 99), st.integers(1, 1 << 20))
def test_bytes_are_exact_and_in_the_order_of_the_precisions(
    matrix: int, vectors: int, times: int, block: int
) -> None:
    counted = part(matrix + vectors, vectors, times)
    fp32, fp16, int8, int4 = (precision.nbytes(counted, block) for precision in Precision)

    assert fp32 == 2 * fp16 == 4 * counted.value
    assert int8 >= int4
    assert int8 - times * -(-matrix // block) * 2 == times * (matrix + 2 * vectors)
    if block >= 4:
        assert int8 <= fp16 + 2 * times


@given(st.integers(1, 10**12), st.integers(1, 1000))
def test_larger_blocks_never_take_more(matrix: int, block: int) -> None:
    counted = part(matrix)

    assert Precision.INT4.nbytes(counted, 2 * block) <= Precision.INT4.nbytes(counted, block)


def test_a_block_is_of_32_elements_by_default() -> None:
    formula = counted(BERT_BASE)

    assert BLOCK == 32
    assert weigh(formula) == weigh(formula, 32) != weigh(formula, 64)


# the cache


def test_llama_2_70b_caches_327680_bytes_for_each_token() -> None:
    size = counted(LLAMA_2_70B).cache
    assert size is not None
    found = cache_bytes(size)

    assert found.token == 2 * 80 * 8 * 128 * 2 == 327_680
    assert (found.tokens, found.kept, found.nbytes) == (4096, 4096, 1_342_177_280)
    assert cache_bytes(size, 1).nbytes == 327_680


@pytest.mark.parametrize(
    ("size", "tokens", "expected"),
    [
        (cache(), None, CacheBytes(20, 0, 1, 1, 0)),
        (cache(), 7, CacheBytes(20, 0, 7, 7, 0)),
        (cache(context=50), None, CacheBytes(20, 0, 50, 50, 0)),
        (cache(context=50), 70, CacheBytes(20, 0, 70, 70, 0)),
        (cache(context=50, window=8), None, CacheBytes(20, 0, 50, 8, 0)),
        (cache(context=50, window=8), 5, CacheBytes(20, 0, 5, 5, 0)),
        (cache(window=0), 5, CacheBytes(20, 0, 5, 0, 0)),
        (cache(source_token=3, source_context=40), 5, CacheBytes(20, 6, 5, 5, 40)),
        (cache(source_token=3), 5, CacheBytes(20, 6, 5, 5, 5)),
        (cache(source_token=0, source_context=40), 5, CacheBytes(20, 0, 5, 5, 0)),
    ],
)
def test_a_window_bounds_what_is_kept_and_the_encoder_comes_on_top(
    size: CacheSize, tokens: int | None, expected: CacheBytes
) -> None:
    found = cache_bytes(size, tokens)

    assert found == expected
    assert found.nbytes == found.token * found.kept + found.source_token * found.source_tokens


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.none() | st.integers(1, 10**9))
def test_a_longer_sequence_never_takes_less(shorter: int, more: int, window: int | None) -> None:
    size = cache(window=window)

    assert cache_bytes(size, shorter).nbytes <= cache_bytes(size, shorter + more).nbytes


def test_whisper_caches_what_its_encoder_says_once() -> None:
    size = counted({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]}).cache
    assert size is not None
    found = cache_bytes(size)

    # Keys and values of 4 layers of width 384: 448 tokens of text, 1,500 positions of audio.
    assert (found.tokens, found.source_tokens) == (448, 1500)
    assert found.nbytes == 2 * 4 * 384 * 2 * (448 + 1500)
