"""Inputs that a model is fed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import audit, text_model
from onnx import helper

from analyzer.errors import UsageError
from analyzer.timing.inputs.arrays import make_array
from analyzer.timing.inputs.feeds import Inputs, plan_feeds
from analyzer.timing.inputs.sizes import parse_shapes
from analyzer.timing.request import Feed, Fill

BERT = """
g (int64[s18,s41] input_ids, int64[s43,s41] attention_mask, int64[s18,s41] token_type_ids) => (float y)
{ a = Gather(words, input_ids) b = Gather(kinds, token_type_ids) c = Add(a, b) m = Cast<to=1>(attention_mask)
  n = Unsqueeze(m, last) y = Mul(c, n) }
"""
WEIGHTS = {
    "words": np.ones((50, 4), np.float32),
    "kinds": np.ones((2, 4), np.float32),
    "last": np.array([2]),
}
CACHED = """
g (int64[b,s] input_ids, int64[b,t] attention_mask, int64[b,s] position_ids, float[b,2,p,4] past_key_values_0,
   bool[1] use_cache_branch) => (float y)
{ a = Gather(words, input_ids) k = Gather(kinds, position_ids) y = Add(a, k) }
"""


def planned(folder: Path, model: str | onnx.ModelProto, *shapes: str, **options: Any) -> tuple[Inputs, ...]:
    proto = text_model(model, WEIGHTS) if isinstance(model, str) else model
    return plan_feeds(audit(folder, proto), parse_shapes(shapes), **options)


def feeds(folder: Path, model: str | onnx.ModelProto, *shapes: str, **options: Any) -> dict[str, Feed]:
    (inputs,) = planned(folder, model, *shapes, **options)
    return {feed.name: feed for feed in inputs.feeds}


def of_type(proto: onnx.TypeProto) -> onnx.ModelProto:
    model = text_model("g (float x) => (float y) { y = Identity(x) }")
    model.graph.input[0].type.CopyFrom(proto)
    return model


def saved(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "inputs.npz", **arrays)
    return folder / "inputs.npz"


def test_tokens_are_below_the_rows_of_their_tables_and_masks_are_ones(tmp_path):
    assert feeds(tmp_path, BERT, "batch=8,sequence=16") == {
        "input_ids": Feed("input_ids", "INT64", (8, 16), Fill.INTEGERS, 0, 49),
        "attention_mask": Feed("attention_mask", "INT64", (8, 16), Fill.CONSTANT, 1, 1),
        "token_type_ids": Feed("token_type_ids", "INT64", (8, 16), Fill.INTEGERS, 0, 1),
    }


def test_every_axis_of_every_input_is_reported_with_its_reason(tmp_path):
    (inputs,) = planned(tmp_path, BERT, "batch=8")

    assert [(axis.input, axis.name, axis.size, axis.reason) for axis in inputs.axes][:3] == [
        ("input_ids", "s18", 8, "--shape batch"),
        ("input_ids", "s41", 128, "default of sequence"),
        ("attention_mask", "s43", 8, "--shape batch"),
    ]


def test_sweep_has_a_point_for_each_length(tmp_path):
    points = planned(tmp_path, BERT, "batch=2,sequence=8:32:x2")

    assert [(point.value, point.feeds[0].shape) for point in points] == [
        (8, (2, 8)),
        (16, (2, 16)),
        (32, (2, 32)),
    ]


def test_after_a_past_positions_go_on_and_the_cache_is_used(tmp_path):
    found = feeds(tmp_path, CACHED, past=7)

    assert found["position_ids"] == Feed("position_ids", "INT64", (1, 1), Fill.POSITIONS, 7, 1)
    assert found["attention_mask"].shape == (1, 8)
    assert found["past_key_values_0"] == Feed("past_key_values_0", "FLOAT", (1, 2, 7, 4), Fill.UNIFORM, -1, 1)
    assert found["use_cache_branch"].low == 1


def test_without_a_past_the_cache_is_empty_and_not_used(tmp_path):
    found = feeds(tmp_path, CACHED)

    assert found["past_key_values_0"].shape == (1, 2, 0, 4)
    assert (found["use_cache_branch"].low, found["position_ids"].low) == (0, 0)


@pytest.mark.parametrize(
    ("declared", "feed"),
    [
        ("float[1,3,8,8] pixel_values", ("FLOAT", Fill.UNIFORM, -1, 1)),
        ("uint8[1,3,8,8] image", ("UINT8", Fill.INTEGERS, 0, 255)),
        ("int8[1,3,8,8] image", ("INT8", Fill.INTEGERS, 0, 127)),
        ("bool[2,3] attention_mask", ("BOOL", Fill.CONSTANT, 1, 1)),
        ("float16[2,1,3,3] attention_mask", ("FLOAT16", Fill.CONSTANT, 1, 1)),
        ("bfloat16[2,3] x", ("BFLOAT16", Fill.UNIFORM, -1, 1)),
        ("double[1] temperature", ("DOUBLE", Fill.CONSTANT, 1, 1)),
        ("string[2] x", ("STRING", Fill.TEXT, 0, 0)),
        ("int32[2,3] x", ("INT32", Fill.INTEGERS, 0, 1)),
        ("bool cond", ("BOOL", Fill.CONSTANT, 1, 1)),
        ("int64 sr", ("INT64", Fill.CONSTANT, 16_000, 16_000)),
        ("int64[1] max_length", ("INT64", Fill.CONSTANT, 17, 17)),
        ("int64[1] num_logits_to_keep", ("INT64", Fill.CONSTANT, 0, 0)),
        ("int64[2] input_lengths", ("INT64", Fill.CONSTANT, 1, 1)),
        ("int64[2,3] token_type_ids", ("INT64", Fill.INTEGERS, 0, 0)),
        ("int64[2,3] input_ids", ("INT64", Fill.INTEGERS, 0, 1)),
    ],
)
def test_inputs_are_made_as_their_names_and_types_say(tmp_path, declared, feed):
    (found,) = feeds(tmp_path, f"g ({declared}) => (float y) {{ y = Odd(x) }}").values()

    assert (found.dtype, found.fill, found.low, found.high) == feed


def test_vocabulary_of_the_settings_is_a_bound_where_no_table_is_found(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 30}')

    (found,) = feeds(tmp_path, "g (int64[2,3] input_ids) => (float y) { y = Odd(input_ids) }").values()

    assert found.high == 29


def test_index_into_what_is_computed_is_0(tmp_path):
    text = "g (float[n,3] nodes, int64[2,m] edges) => (float y) { k = Neg(nodes) y = Gather(k, edges) }"

    assert feeds(tmp_path, text)["edges"].high == 0


def test_model_that_writes_to_a_cache_of_fixed_size_stays_within_it(tmp_path):
    text = """g (int64[b,s] input_ids, float[b,16,8] key_cache, int64[b] write_indices, int64[b] kv_seqlen) => (float y)
              { y = Gather(words, input_ids) }"""

    found = feeds(tmp_path, text)

    assert found["input_ids"].shape == (1, 16)
    assert (found["write_indices"].low, found["kv_seqlen"].low) == (0, 16)


def test_arrays_of_a_file_are_used_and_the_others_are_made_to_fit(tmp_path):
    npz = saved(tmp_path, input_ids=np.ones((3, 7), np.int64))

    found = feeds(tmp_path, BERT, npz=npz)

    assert found["input_ids"] == Feed("input_ids", "INT64", (3, 7), Fill.FILE)
    assert found["attention_mask"] == Feed("attention_mask", "INT64", (3, 7), Fill.CONSTANT, 1, 1)


def test_array_gives_an_input_of_unknown_rank_its_axes(tmp_path):
    model = of_type(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))

    assert feeds(tmp_path, model, npz=saved(tmp_path, x=np.ones((2, 3), np.float32)))["x"].shape == (2, 3)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (
            {"ids": np.ones(1)},
            "ids is no input of the model; it has input_ids, attention_mask, token_type_ids",
        ),
        ({"input_ids": np.ones((3, 7), np.int32)}, "input_ids is to be INT64, and the file has int32"),
        ({"input_ids": np.ones(3, np.int64)}, "input_ids is to have 2 axes, and the file has 1"),
        (
            {"input_ids": np.ones((3, 7), np.int64), "attention_mask": np.ones((3, 8), np.int64)},
            "axis 1 of input_ids would have 8, and --input has 7",
        ),
    ],
)
def test_arrays_that_do_not_fit_the_model_are_refused(tmp_path, arrays, sentence):
    with pytest.raises(UsageError, match=sentence):
        feeds(tmp_path, BERT, npz=saved(tmp_path, **arrays))


@pytest.mark.parametrize(
    ("proto", "sentence"),
    [
        (
            helper.make_sequence_type_proto(
                helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, [1]))
            ),
            "x: is a sequence",
        ),
        (
            helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)),
            "x: the file does not say its",
        ),
        (helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, [1])), "x: is a map"),
        (
            helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [1])),
            "x: is an optional",
        ),
        (helper.make_sparse_tensor_type_proto(1, [2]), "x: is a sparse tensor"),
        (onnx.TypeProto(), "x: is of a type that the file does not give"),
        (helper.make_tensor_type_proto(1, None), r"does not say its rank; give it with --input FILE\.npz"),
        (helper.make_tensor_type_proto(onnx.TensorProto.INT4, [1]), "INT4 elements cannot be fed"),
        (helper.make_tensor_type_proto(0, [1]), "UNDEFINED elements cannot be fed"),
        (helper.make_tensor_type_proto(1, [1] * 80), "more than 64 axes"),
        (helper.make_tensor_type_proto(1, [2**40, 2]), "take 8,796,093,022,208 bytes"),
    ],
)
def test_input_that_cannot_be_made_says_so(tmp_path, proto, sentence):
    with pytest.raises(UsageError, match=sentence):
        feeds(tmp_path, of_type(proto))


def test_model_without_inputs_is_fed_nothing(tmp_path):
    (inputs,) = planned(tmp_path, "g () => (float y) { y = Constant<value_float=1.0>() }")

    assert inputs == Inputs((), ())


@pytest.mark.time
@pytest.mark.parametrize("shapes", [[], ["batch=3,sequence=5"], ["s18=2"]])
def test_onnxruntime_runs_what_is_made(tmp_path, shapes):
    import onnxruntime

    (inputs,) = planned(tmp_path, BERT, *shapes)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])

    (out,) = session.run(None, {feed.name: make_array(feed, 0) for feed in inputs.feeds})

    assert out.shape == (*inputs.feeds[0].shape, 4)
