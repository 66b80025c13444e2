"""Names of execution providers, their options, and the packages to install."""

from __future__ import annotations

import re

import pytest

from analyzer.errors import MissingExtraError, TimingError, UsageError
from analyzer.timing.request import CPU
from analyzer.timing.running import providers
from analyzer.timing.running.providers import (
    binding_device,
    blocking_environment,
    chain,
    check_installed,
    missing,
    parse_options,
    provider_name,
    saves_graph,
    short_name,
)

CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"


@pytest.mark.parametrize("text", ["cuda", "CUDA", " Cuda ", "cudaexecutionprovider", CUDA])
def test_a_provider_is_known_by_any_spelling_of_its_name(text: str) -> None:
    assert provider_name(text) == CUDA


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu", CPU),
        ("trt", TENSORRT),
        ("directml", "DmlExecutionProvider"),
        ("nv-tensorrt-rtx", "NvTensorRTRTXExecutionProvider"),
        ("migraphx", "MIGraphXExecutionProvider"),
        ("web_gpu", "WebGpuExecutionProvider"),
    ],
)
def test_a_provider_is_known_by_its_common_name(text: str, name: str) -> None:
    assert provider_name(text) == name


def test_a_short_name_is_understood_again() -> None:
    assert all(provider_name(short_name(name)) == name for name in providers._BY_NAME)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r'no "cuda0": did you mean cuda\? \(it knows acl, .*xnnpack'):
        provider_name("cuda0")


def test_a_name_cannot_reach_the_terminal_as_an_escape_sequence() -> None:
    with pytest.raises(UsageError) as error:
        provider_name("\x1b[2J")

    assert "\x1b" not in str(error.value)


def test_the_provider_of_a_plug_in_is_known_where_it_is_registered() -> None:
    assert provider_name("mlx", known=["MlxExecutionProvider"]) == "MlxExecutionProvider"


def test_tensorrt_leaves_to_cuda_and_cuda_to_the_processor() -> None:
    names = [name for name, _ in chain(TENSORRT, [TENSORRT, CUDA, CPU])]

    assert names == [TENSORRT, CUDA, CPU]


def test_a_chain_has_no_provider_that_is_not_installed() -> None:
    assert [name for name, _ in chain(TENSORRT, [TENSORRT, CPU])] == [TENSORRT, CPU]


def test_the_processor_is_alone_in_its_chain() -> None:
    assert chain(CPU, [CUDA, CPU]) == [(CPU, {})]


def test_only_the_device_of_the_options_goes_to_the_next_in_the_chain() -> None:
    options = (("device_id", "1"), ("trt_fp16_enable", "1"))

    chained = dict(chain(TENSORRT, [TENSORRT, CUDA, CPU], options))

    assert chained == {TENSORRT: dict(options), CUDA: {"device_id": "1"}, CPU: {}}


def test_a_provider_that_is_not_built_in_says_what_is_and_what_to_install() -> None:
    with pytest.raises(TimingError) as error:
        check_installed(CUDA, ["AzureExecutionProvider", CPU])

    assert "cannot run on cuda, only on azure, cpu" in str(error.value)
    assert 'pip uninstall onnxruntime, then pip install "onnxledger[time-gpu]"' in str(error.value)
    assert '"onnxruntime-gpu[cuda,cudnn]" brings the CUDA and cuDNN libraries' in str(error.value)


@pytest.mark.parametrize(
    ("name", "package"), [("openvino", "onnxruntime-openvino"), ("dml", "onnxruntime-directml")]
)
def test_each_provider_has_its_own_package(name: str, package: str) -> None:
    with pytest.raises(TimingError, match=f"pip uninstall onnxruntime, then pip install {package}"):
        check_installed(provider_name(name), [CPU])


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (
            "cpu",
            'timing a model needs onnxruntime, which is not installed: pip install "onnxledger\\[time\\]"',
        ),
        ("cuda", 'timing a model on cuda needs .*: pip install "onnxledger\\[time-gpu\\]"'),
        ("tensorrt", 'timing a model on tensorrt needs .*: pip install "onnxledger\\[time-gpu\\]"'),
        ("coreml", 'timing a model on coreml needs .*: pip install "onnxledger\\[time\\]"'),
        ("openvino", "timing a model on openvino needs .*: pip install onnxruntime-openvino"),
        ("nvtensorrtrtx", "timing a model on nvtensorrtrtx needs .*: pip install onnxruntime-trt-rtx"),
        (
            "xnnpack",
            "timing a model on xnnpack needs .*: no wheel of onnxruntime has it: build onnxruntime .*",
        ),
    ],
)
def test_where_there_is_no_onnxruntime_the_one_that_has_the_provider_is_named(
    name: str, pattern: str
) -> None:
    assert re.fullmatch(pattern, str(missing(provider_name(name))))


def test_every_provider_says_what_to_install_and_nothing_to_remove_where_there_is_nothing() -> None:
    for name in providers._BY_NAME:
        assert "uninstall" not in str(missing(name))
    plug_in = missing("PlugInExecutionProvider")
    assert isinstance(plug_in, MissingExtraError)
    assert plug_in.extra == "time"


def test_a_provider_that_is_built_in_is_accepted() -> None:
    check_installed(CPU, [CPU])


def test_the_kernels_of_cuda_are_timed_in_a_process_whose_calls_wait() -> None:
    assert blocking_environment(CUDA) == blocking_environment(TENSORRT) == {"CUDA_LAUNCH_BLOCKING": "1"}
    assert blocking_environment(CPU) == {}


def test_inputs_are_bound_to_the_gpu_of_cuda_and_of_what_runs_its_kernels() -> None:
    assert binding_device(CUDA) == binding_device(TENSORRT) == "cuda"
    assert binding_device(CPU) is binding_device("OpenVINOExecutionProvider") is None


def test_the_graph_of_a_provider_that_compiles_is_not_requested() -> None:
    assert saves_graph(CPU)
    assert saves_graph(CUDA)
    assert not saves_graph(TENSORRT)
    assert not saves_graph("OpenVINOExecutionProvider")
    assert saves_graph("SomePluginExecutionProvider")


def test_options_are_sorted_and_keep_their_values_as_they_are() -> None:
    texts = ["gpu_mem_limit = 1073741824", "arena_extend_strategy=kSameAsRequested", "device_id=0"]

    options = parse_options(CUDA, texts)

    assert options == (
        ("arena_extend_strategy", "kSameAsRequested"),
        ("device_id", "0"),
        ("gpu_mem_limit", "1073741824"),
    )


def test_a_value_may_have_an_equals_sign() -> None:
    assert parse_options(TENSORRT, ["trt_profile_min_shapes=ids:1x1=2"]) == (
        ("trt_profile_min_shapes", "ids:1x1=2"),
    )


@pytest.mark.parametrize("text", ["device_id", "=1", "a b=1", "key=\x1b[2J", "1st=2", ""])
def test_an_option_has_the_form_key_value(text: str) -> None:
    with pytest.raises(UsageError, match="write it as key=value"):
        parse_options(CUDA, [text])


@pytest.mark.parametrize(
    ("name", "texts", "why"),
    [
        (CPU, ["use_arena=0"], "cpu has no options"),
        (CUDA, ["use_tf32=0", "use_tf32=1"], "use_tf32 is given twice"),
        (CUDA, ["device_id=-1"], "device_id is the number of a device"),
        (CUDA, ["enable_cuda_graph=1"], "no node has a time of its own"),
        (TENSORRT, ["trt_cuda_graph_enable=True"], "no node has a time of its own"),
        (CUDA, ["user_compute_stream=140234"], "an address within a process"),
    ],
)
def test_an_option_that_would_distort_the_measurement_is_refused(
    name: str, texts: list[str], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        parse_options(name, texts)


def test_an_option_may_be_off_that_would_be_refused_on() -> None:
    assert parse_options(CUDA, ["enable_cuda_graph=0"]) == (("enable_cuda_graph", "0"),)
