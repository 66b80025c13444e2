"""Files of a generation loop: the inputs of each, its time, and the total time for all tokens."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import models
import onnx
import pytest
import timings
from commands import run_here
from hypothesis import given
from hypothesis import strategies as st

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Ledger
from analyzer.errors import UsageError
from analyzer.formats import RenderOptions
from analyzer.formats.csv import render_csv
from analyzer.formats.json import to_document
from analyzer.formats.text import render_text
from analyzer.schemas import load_schema
from analyzer.timing.generation import BOTH, Fed, GenerationTiming, Loop, find_loop, plan_loop
from analyzer.timing.inputs.sizes import parse_shapes
from analyzer.timing.record import Timing

DECODER = """
decoder ({inputs}, int64[batch,{mask}] attention_mask)
    => (float[batch,2,{tokens},4] logits, float[batch,2,all,4] present)
{{
    e = Gather(table, input_ids)
    r = Reshape(e, heads)
    k = Transpose<perm = [0,2,1,3]>(r)
    {joined}
    t = Transpose<perm = [0,1,3,2]>(present)
    scores = MatMul(k, t)
    logits = MatMul(scores, present)
}}
"""
SOURCE = "float[batch,encoder_sequence_length,{width}] encoder_hidden_states, "
WEIGHTS = {"table": models.noise(7, 8), "heads": models.np.array([0, 0, 2, 4])}


def decoder(
    tokens: str | int = "sequence",
    past: str | int | None = None,
    batch: str | int = "batch",
    *,
    source: bool = False,
) -> onnx.ModelProto:
    """Return a layer that reads its cache, with optimum's names of inputs."""
    cache = "" if past is None else f", float[batch,2,{past},4] past_key_values.0.key"
    inputs = f"{SOURCE.format(width=8) if source else ''}int64[batch,{tokens}] input_ids{cache}"
    text = DECODER.format(
        inputs=inputs.replace("past_key_values.0.key", '"past_key_values.0.key"'),
        mask="sequence" if past is None else "total_sequence",
        tokens=tokens,
        joined="present = Identity(k)"
        if past is None
        else 'present = Concat<axis = 2>("past_key_values.0.key", k)',
    )
    return models.text_model(text.replace("batch", str(batch)), WEIGHTS)


def encoder(made: str = "encoder_sequence_length") -> onnx.ModelProto:
    text = f"encoder (int64[batch,encoder_sequence_length] input_ids) => (float[batch,{made},8] last_hidden_state)"
    return models.text_model(f"{text} {{ last_hidden_state = Gather(table, input_ids) }}", WEIGHTS)


def embedding() -> onnx.ModelProto:
    text = "embed (int64[batch,sequence] input_ids) => (float[batch,sequence,8] inputs_embeds)"
    return models.text_model(f"{text} {{ inputs_embeds = Gather(table, input_ids) }}", WEIGHTS)


def listener(made: str | int) -> onnx.ModelProto:
    """Return an audio encoder that returns half as many frames."""
    text = f"encoder (float[batch,8,frames] input_features) => (float[batch,{made},8] last_hidden_state)"
    proto = models.text_model(f"{text} {{ last_hidden_state = Identity(input_features) }}")
    if made == "half":
        proto.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "frames // 2"
    return proto


def folder_of(folder: Path, **files: onnx.ModelProto) -> Path:
    for name, proto in files.items():
        models.save(folder, proto, f"{name}.onnx")
    return folder


def audited(folder: Path) -> dict[str, Ledger]:
    return {path.stem: audit_model(path) for path in sorted(folder.glob("*.onnx"))}


def planned(
    folder: Path, *shapes: str, new: int | None = None
) -> tuple[Loop, dict[str, list[dict[str, tuple[int, ...]]]]]:
    """Return the loop, and the input shapes of each component and step at each point."""
    ledgers = audited(folder)
    steps = find_loop(list(ledgers)) or dict.fromkeys(ledgers, BOTH)
    loop, fed = plan_loop(ledgers, steps, parse_shapes(shapes), new)
    return loop, {
        f"{each.name} {each.step}": list(map(shapes_of, [each] * len(each.inputs), range(9))) for each in fed
    }


def shapes_of(fed: Fed, at: int) -> dict[str, tuple[int, ...]]:
    return {feed.name: feed.shape for feed in fed.inputs[at].feeds}


def pair(folder: Path, **how: Any) -> Path:
    """Save the two files of a decoder, as optimum names them."""
    return folder_of(
        folder,
        decoder_model=decoder(**how),
        decoder_with_past_model=decoder(past="past_sequence", **how),
    )


# files that form a loop


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["prefill", "decode"], ["prefill", "decode"]),
        (["encoder", "prefill", "decode"], ["encode", "prefill", "decode"]),
        (["decoder_model", "decoder_with_past_model", "encoder_model"], ["prefill", "decode", "encode"]),
        (["onnx/encoder_model_q4", "onnx/decoder_model_merged_q4"], ["encode", "prefill+decode"]),
        (
            ["vision_encoder", "embed_tokens", "decoder_model_merged"],
            ["encode", "prefill+decode", "prefill+decode"],
        ),
        (["language_model", "lm_head", "decode", "mine"], ["prefill", "prefill", "decode", "other"]),
        (["encoder_model", "decoder_model"], None),
        (["model", "model_quantized"], None),
    ],
)
def test_the_names_of_the_files_say_when_a_loop_runs_them(names: list[str], steps: list[str] | None) -> None:
    found = find_loop(names)

    assert (None if found is None else ["+".join(each) for each in found.values()]) == steps


@pytest.mark.parametrize(
    "names",
    [
        ["decoder_model", "decoder_with_past_model", "decoder_model_merged"],
        ["encoder_model", "encoder_model_fp16", "decoder_model_merged"],
        ["prefill", "decode", "decode_int8"],
    ],
)
def test_two_files_for_one_step_are_refused(names: list[str]) -> None:
    with pytest.raises(UsageError, match="are for the same step of a loop; keep the files of one loop"):
        find_loop(names)


# inputs of each file


def test_a_decoder_is_fed_the_prompt_and_then_one_token_with_a_cache(tmp_path: Path) -> None:
    loop, fed = planned(pair(tmp_path), "batch=2,sequence=6", new=5)

    assert (loop.batch, loop.prompt, loop.source, loop.new_tokens, loop.caches) == (2, 6, None, 5, (6, 9))
    assert fed == {
        "decoder_model prefill": [{"input_ids": (2, 6), "attention_mask": (2, 6)}],
        "decoder_with_past_model decode": [
            {"input_ids": (2, 1), "past_key_values.0.key": (2, 2, past, 4), "attention_mask": (2, past + 1)}
            for past in (6, 9)
        ],
    }


def test_a_merged_decoder_is_for_both_steps(tmp_path: Path) -> None:
    folder_of(tmp_path, decoder_model_merged=decoder(past="past_sequence"), encoder_model=encoder())
    loop, fed = planned(tmp_path, "sequence=6", new=3)

    assert (loop.prompt, loop.caches) == (6, (6, 7))
    assert fed["decoder_model_merged prefill"][0]["past_key_values.0.key"] == (1, 2, 0, 4)
    assert [each["past_key_values.0.key"][2] for each in fed["decoder_model_merged decode"]] == [6, 7]


def test_behind_an_encoder_the_decoder_begins_with_one_token(tmp_path: Path) -> None:
    folder_of(pair(tmp_path, source=True), encoder_model=encoder())

    loop, fed = planned(tmp_path, "sequence=30", new=8)

    assert (loop.source, loop.prompt, loop.caches) == (30, 1, (1, 7))
    assert fed["encoder_model encode"] == [{"input_ids": (1, 30)}]
    prefill, decode = fed["decoder_model prefill"][0], fed["decoder_with_past_model decode"][1]
    assert (prefill["input_ids"], prefill["encoder_hidden_states"]) == ((1, 1), (1, 30, 8))
    assert (decode["past_key_values.0.key"], decode["encoder_hidden_states"]) == ((1, 2, 7, 4), (1, 30, 8))
    assert planned(tmp_path, "encoder_sequence=9,decoder_sequence=4", new=8)[0].caches == (4, 10)
    assert planned(tmp_path, "encoder_sequence_length=9")[0].source == 9


def test_what_embeds_tokens_is_run_for_each_before_the_decoder(tmp_path: Path) -> None:
    folder_of(tmp_path, decoder_model_merged=decoder(past="past_sequence"), embed_tokens=embedding())

    _, fed = planned(tmp_path, "sequence=6")

    steps = (
        "embed_tokens prefill",
        "decoder_model_merged prefill",
        "embed_tokens decode",
        "decoder_model_merged decode",
    )
    assert tuple(fed) == steps
    assert (fed[steps[0]], fed[steps[2]]) == ([{"input_ids": (1, 6)}], [{"input_ids": (1, 1)}])


@pytest.mark.parametrize(
    ("made", "shapes", "source", "reason"),
    [
        (30, [], 30, "output of the encoder"),
        ("half", ["frames=100"], 50, "output of the encoder"),
        ("anything", [], 128, "default of encoder_sequence"),
        ("anything", ["encoder_sequence=70"], 70, "--shape encoder_sequence"),
    ],
)
def test_what_an_encoder_of_sound_passes_on_is_what_it_declares(
    tmp_path: Path, made: str | int, shapes: list[str], source: int, reason: str
) -> None:
    folder_of(pair(tmp_path, source=True), encoder_model=listener(made))

    loop, fed = planned(tmp_path, *shapes)

    assert (loop.source, loop.source_reason) == (source, reason)
    assert fed["decoder_model prefill"][0]["encoder_hidden_states"] == (1, source, 8)


@given(batch=st.integers(1, 4), prompt=st.integers(1, 300), new=st.integers(1, 300))
def test_the_caches_are_those_of_the_first_and_the_last_further_token(
    tmp_path_factory: pytest.TempPathFactory, batch: int, prompt: int, new: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-loop"
    if not folder.exists():
        folder.mkdir()
        pair(folder)

    loop, fed = planned(folder, f"batch={batch}", f"sequence={prompt}", new=new)

    runs = [prompt + token for token in range(new - 1)] or [prompt]
    assert loop.caches == tuple(dict.fromkeys((runs[0], runs[-1])))
    for cache, shapes in zip(loop.caches, fed["decoder_with_past_model decode"], strict=True):
        assert shapes["attention_mask"] == (batch, cache + 1)


def test_a_cache_that_the_file_fixes_is_measured_once(tmp_path: Path) -> None:
    folder_of(tmp_path, prefill=decoder(12), decode=decoder(1, 20))

    loop, fed = planned(tmp_path)

    assert (loop.prompt, loop.prompt_reason, loop.caches) == (12, "file", (20,))
    assert [each["past_key_values.0.key"] for each in fed["decode decode"]] == [(1, 2, 20, 4)]


def learned(past: str | None = None) -> onnx.ModelProto:
    """Return a decoder that looks up positions in a table of 40."""
    proto = decoder(past=past)
    lookup = models.text_model(
        "g (int64[batch,sequence] position_ids) => (float[batch,sequence,2] y) { y = Gather(wpe, position_ids) }",
        {"wpe": models.noise(40, 2)},
    )
    proto.graph.node.extend(lookup.graph.node)
    proto.graph.initializer.extend(lookup.graph.initializer)
    proto.graph.input.append(lookup.graph.input[0])
    proto.graph.output.extend(lookup.graph.output)
    return proto


def test_prompt_and_new_tokens_fit_a_table_of_positions_unless_somebody_says_otherwise(
    tmp_path: Path,
) -> None:
    folder_of(tmp_path, prefill=learned(), decode=learned("past_sequence"))

    usual, short, chosen = (
        planned(tmp_path)[0],
        planned(tmp_path, new=35)[0],
        planned(tmp_path, "sequence=30")[0],
    )

    assert [(each.prompt, each.new_tokens) for each in (usual, short, chosen)] == [
        (20, 21),
        (6, 35),
        (30, 11),
    ]
    for more in (["sequence=30"], 12), (["sequence=41"], None):
        with pytest.raises(
            UsageError, match="take 41 positions, and the model's table has 40; give fewer with --shape"
        ):
            planned(tmp_path, *more[0], new=more[1])
    assert usual.caches[-1] + 1 == short.caches[-1] + 1 == chosen.caches[-1] + 1 == 40


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        (
            "sequence=16:64:x2",
            "a sweep takes one model, and this is a loop of several; give one size, or name one",
        ),
        (
            "past_sequence=9",
            "the loop decides this axis; give the prompt with --shape sequence=N, and the new tokens",
        ),
        (
            "tokens=9",
            "no axis, input or role of the model has this name; inputs, with their axes and roles: input_ids",
        ),
        ("encoder_sequence=9", "no decoder of this loop reads an encoder's output; leave it out"),
        (
            "sequence=9,decoder_sequence=8",
            "contradicts --shape decoder_sequence|contradicts --shape sequence",
        ),
    ],
)
def test_sizes_that_are_of_no_loop_are_refused(tmp_path: Path, shapes: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        planned(pair(tmp_path), shapes)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"prefill": decoder(batch=2), "decode": decoder(1, "past_sequence", batch=3)},
            "prefill takes 2 sequences at a time, and decode 3; give --shape batch=N, or name one of the files",
        ),
        (
            {"prefill": decoder(), "decode": decoder(2, "past_sequence")},
            "decode: one token: axis 1 of input_ids would have 1, and the file fixes it to 2; make them agree",
        ),
        (
            {"model": decoder()},
            "model: takes no key-value cache, so that no loop runs it token by token; leave",
        ),
    ],
)
def test_files_that_do_not_fit_together_are_refused(
    tmp_path: Path, files: dict[str, onnx.ModelProto], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        planned(folder_of(tmp_path, **files))


# totals


def with_means(
    report: GenerationTiming, means: Sequence[Sequence[float]], new: int, batch: int
) -> GenerationTiming:
    """Return the report with other mean times."""

    def timed(timing: Timing, ms: Sequence[float]) -> Timing:
        points = zip(timing.points, ms, strict=True)
        return replace(timing, points=tuple(replace(p, latency=timings.latency(mean)) for p, mean in points))

    components = zip(report.components, means, strict=True)
    return replace(
        report,
        loop=replace(report.loop, new_tokens=new, batch=batch),
        components=tuple(replace(each, timing=timed(each.timing, ms)) for each, ms in components),
    )


_ms = st.floats(1e-3, 1e4)


@given(ms=st.tuples(_ms, _ms, _ms, _ms), new=st.integers(1, 500), batch=st.integers(1, 9))
def test_all_tokens_take_what_each_takes_on_the_line_between_the_caches(
    tmp_path_factory: pytest.TempPathFactory, ms: tuple[float, ...], new: int, batch: int
) -> None:
    folder = tmp_path_factory.mktemp("loop", numbered=True)
    encode, prefill, first, last = ms

    report = with_means(timings.make_generation(folder), [(encode,), (prefill,), (first, last)], new, batch)

    steps = max(new - 2, 1)
    each = [first + (last - first) * token / steps for token in range(new - 1)]
    if new == 2:
        each = [(first + last) / 2]
    assert report.first_token_ms == pytest.approx(encode + prefill)
    assert report.total_ms == pytest.approx(encode + prefill + math.fsum(each))
    assert report.tokens_per_second == pytest.approx(1e3 * batch / ((first + last) / 2))
    document = to_document(report)
    assert document["total_ms"] == pytest.approx(math.fsum(row["total_ms"] for row in document["components"]))
    assert math.fsum(row["share"] for row in document["components"]) == pytest.approx(1)


@pytest.mark.parametrize("is_own", [False, True])
def test_printed_rows_sum_to_the_printed_whole(tmp_path: Path, is_own: bool) -> None:
    text = render_text(timings.make_generation(tmp_path, is_own=is_own), RenderOptions(width=120, rows=0))

    _, files, groups = text.split("\n\n")[:3]
    whole = re.findall(_PRINTED, files)[-1]
    *rows, total = [re.findall(_PRINTED, line) for line in groups.splitlines() if re.match(r"\S.*%", line)]
    assert total[-1] == whole
    for column in zip(*rows, total, strict=True):
        *parts, printed = (float(ms.replace(",", "")) for ms in column)
        assert math.fsum(parts) == pytest.approx(printed, abs=0.0005 * len(column))


_PRINTED = r"(?<= )-?[\d,]+\.\d{3}\b"


def test_rows_of_the_csv_sum_to_each_profiled_run(tmp_path: Path) -> None:
    report = timings.make_generation(tmp_path)
    sums: dict[tuple[str, str], float] = {}

    for row in csv.DictReader(io.StringIO(render_csv(report))):
        key = row["component"], row["cache"]
        sums[key] = sums.get(key, 0.0) + float(row["ms"])

    assert list(sums) == [("encoder", ""), ("prefill", ""), ("decode", "2"), ("decode", "5")]
    points = [point for each in report.components for point in each.timing.points]
    assert list(sums.values()) == pytest.approx([point.profiled.mean for point in points])


def test_the_text_of_a_loop(tmp_path: Path, golden: Any) -> None:
    golden("time-generation", render_text(timings.make_generation(tmp_path)))


# with onnxruntime


@pytest.mark.time
@pytest.mark.child
def test_one_file_with_a_cache_is_timed_as_a_loop_where_new_tokens_are_requested(tmp_path: Path) -> None:
    folder_of(tmp_path, model=decoder(past="past_sequence"))

    found = run_here("time", tmp_path / "model.onnx", "--new-tokens", "4", "--runs", "3", "--format", "json")

    document = json.loads(found.stdout)
    assert [(row["component"], row["step"], row["times"]) for row in document["components"]] == [
        ("model", "prefill", 1),
        ("model", "decode", 3),
    ]
    assert [point["cache"] for row in document["components"] for point in row["points"]] == [0, 128, 130]


@pytest.mark.time
@pytest.mark.child
def test_what_is_of_one_model_is_refused_of_a_loop_before_anything_runs(tmp_path: Path) -> None:
    pair(tmp_path)
    cases = {
        ("--past", "8"): "--past: a loop's cache is as long as its prompt and the tokens so far",
        (
            "--input",
            "x.npz",
        ): "--input x.npz: has the inputs of one model, but this is a loop; name one of its files",
        ("-o", str(tmp_path / "x.svg")): "no format for the suffix '.svg'; use one of",
        ("-o", str(tmp_path / "decoder_model.onnx")): "no format for the suffix",
        ("--by", "dtype"): "dtype",
        ("--new-tokens", "0"): "0 is not in the range",
    }

    for options, reason in cases.items():
        found = run_here("time", tmp_path, *options)

        assert (found.returncode, found.stdout) == (2, "")
        assert reason in found.stderr


@pytest.mark.time
@pytest.mark.child
def test_a_file_that_cannot_run_is_named(tmp_path: Path) -> None:
    broken = decoder(past="past_sequence")
    broken.graph.node[0].op_type = "Gathering"
    folder_of(tmp_path, prefill=decoder(), decode=broken)

    found = run_here("time", tmp_path, "--runs", "1")

    assert (found.returncode, found.stdout) == (2, "")
    assert "decode.onnx" in found.stderr
    assert "Gathering" in found.stderr


@pytest.mark.export
@pytest.mark.time
@pytest.mark.child
@pytest.mark.parametrize(
    ("name", "shapes", "shown"),
    [
        ("llama", "sequence=12,batch=2", [("prefill", "12", ""), ("decode", "1", "12 to 18")]),
        (
            "t5",
            "sequence=12,batch=2",
            [("encode", "12", ""), ("prefill", "1", ""), ("decode", "1", "1 to 7")],
        ),
    ],
)
def test_an_export_of_a_loop_is_timed(
    exported: Any, tmp_path: Path, name: str, shapes: str, shown: list[tuple[str, str, str]]
) -> None:
    folder = exported(name, generation=True).files.artifact
    saved = tmp_path / "report.json"

    found = run_here("time", folder, "--shape", shapes, "--new-tokens", "8", "--runs", "3", "-o", saved)

    assert found.returncode == 0, found.stderr
    document = json.loads(saved.read_text())
    jsonschema.validate(document, load_schema("generation"))
    assert [row["step"] for row in document["components"]] == [step for step, _, _ in shown]
    assert document["loop"]["batch"] == 2
    means = [[p["timing"]["latency_ms"]["mean"] for p in row["points"]] for row in document["components"]]
    (first, last), once = means.pop(), math.fsum(ms for (ms,) in means)
    assert document["first_token_ms"] == pytest.approx(once)
    assert document["total_ms"] == pytest.approx(once + 7 * (first + last) / 2)
    text = found.stdout
    lines = [line.split() for line in text.splitlines()]
    for step, tokens, cache in shown:
        assert any(
            line[0:1] == [step] and line[2:][: len(expected)] == expected
            for line in lines
            for expected in [f"{tokens} {cache}".split()]
        )
    again = run_here("show", saved)
    assert again.stdout.splitlines()[2:] == text.splitlines()[2:]
    alone = tmp_path / "decode.json"
    alone.write_text(json.dumps(document["components"][-1]["points"][0]["timing"]))
    assert "ms median at batch 2" in run_here("show", alone).stdout
    refused = run_here("compare", saved, saved)
    assert (refused.returncode, "time each file of the loop alone" in refused.stderr) == (2, True)


def test_the_lines_of_the_document_s_table_sum_to_their_totals() -> None:
    page = (Path(__file__).parents[2] / "docs" / "timing.md").read_text(encoding="utf-8")

    (table,) = re.findall(r"^scope, depth \d +prefill .*?^the mean run .*?$", page, re.MULTILINE | re.DOTALL)
    *rows, total = [re.findall(_PRINTED, line) for line in table.splitlines()[1:]]
    for column in zip(*rows, total, strict=True):
        *parts, printed = (float(ms.replace(",", "")) for ms in column)
        assert math.fsum(parts) == pytest.approx(printed, abs=0.0005 * len(column))
