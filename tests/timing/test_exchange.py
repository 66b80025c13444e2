from pathlib import Path

import pytest

from analyzer.timing.request import (
    Feed,
    Fill,
    Job,
    Kernel,
    Optimization,
    Raised,
    Reply,
    Request,
    Run,
    Schedule,
    dump_answer,
    dump_job,
    load_answer,
    load_job,
)

FEED = Feed("input_ids", "INT64", (1, 8), Fill.INTEGERS, 0, 30521)
REQUEST = Request(
    model="/models/model.onnx",
    points=((FEED,), (FEED, Feed("mask", "BOOL", (), Fill.CONSTANT, 1, 1))),
    provider="CPUExecutionProvider",
    folder="/tmp/folder",
    npz="/models/inputs.npz",
    seed=7,
    provider_options=(("device_id", "1"),),
    threads=2,
    optimization=Optimization.LAYOUT,
    libraries=("/lib/a.so", "/lib/b.so"),
    schedule=Schedule(runs=5, seconds=1.5),
    file_nbytes=1 << 33,
)
REPLY = Reply(
    runs=(Run((1, 2), (3,), ((4, 5),), 6), Run((), (), ())),
    kernels=(Kernel("a", "Add", "CPUExecutionProvider", 0), Kernel("b", "Mul", "CPUExecutionProvider")),
    providers=("CPUExecutionProvider",),
    optimized=None,
    load_ms=1.25,
    peak_rss_nbytes=None,
    messages=("one", "two"),
    versions=(("onnxruntime", "1.31.1"),),
    clocks=(("processor", 3000.0),),
    assigned=(("OpenVINOExecutionProvider", ("a", "b")),),
    order="in turns",
)


def test_a_job_arrives_as_it_was_sent() -> None:
    job = Job(REQUEST, plain=False, device="cuda", nbytes=1 << 40, in_turns=True)

    assert load_job(dump_job(job)) == job


def test_a_path_that_is_no_text_arrives_as_it_was_sent() -> None:
    model = str(Path("m\udcff\u202e\n.onnx"))
    job = Job(Request(model=model, points=(), provider="CPUExecutionProvider", folder="/tmp"))

    assert dump_job(job).isascii()
    assert load_job(dump_job(job)).request.model == model


@pytest.mark.parametrize("answer", [REPLY, Raised("Fail", "no \x1b[2J", "1.31.1"), "a sentence"])
def test_an_answer_arrives_as_it_was_sent(answer: Reply | Raised | str) -> None:
    assert load_answer(dump_answer(answer)) == answer


def test_an_answer_that_is_cut_off_is_no_answer() -> None:
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        load_answer(dump_answer(REPLY)[:-20])
