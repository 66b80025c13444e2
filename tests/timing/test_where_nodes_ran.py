"""Whether the requested provider ran the nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.errors import TimingError
from analyzer.timing.record import KernelTime
from analyzer.timing.request import Kernel
from analyzer.timing.running.session import (
    check_registered,
    check_used,
    copies,
    fallbacks,
    reason,
    start_failure,
)

CPU, CUDA, AZURE = "CPUExecutionProvider", "CUDAExecutionProvider", "AzureExecutionProvider"

NO_LIBRARIES = (
    "\x1b[1;31m2026-11-22 07:48:55.865790266 [E:onnxruntime:Default, provider_bridge_ort.cc:2458 operator()] "
    "/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:2043 onnxruntime::Provider& "
    "onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library "
    "/usr/lib/python3/onnxruntime/capi/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open "
    "shared object file: No such file or directory\n\x1b[m\n"
    "\x1b[0;93m2026-11-22 07:48:55.865834997 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:1295 "
    "CreateExecutionProviderFactoryInstance] Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 13.*. "
    "Please install all dependencies as mentioned in the GPU requirements page (https://onnxruntime.ai/docs), make "
    "sure they're in the PATH, and that your GPU is supported.\x1b[m\n"
)
"""Text that onnxruntime-gpu 1.31.1 writes to stderr on a machine without CUDA."""

NO_DEVICE = (
    "2026-11-22 07:48:55.1 [E:onnxruntime:Default, provider_bridge_ort.cc:2458 operator()] "
    "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:129 std::conditional_t<THRW, void, "
    "onnxruntime::common::Status> onnxruntime::CudaCall(ERRTYPE, const char*) CUDA failure 100: no CUDA-capable device "
    "is detected ; GPU=-1 ; hostname=build-7 ; file=/onnxruntime_src/cuda_execution_provider.cc ; line=282 ; "
    "expr=cudaSetDevice(info_.device_id);\n"
)


def kernel(name: str, op_type: str, provider: str = CPU, ms: float = 1.0) -> KernelTime:
    return KernelTime(name, op_type, provider, ms, groups=(), decided_by="none", nodes=1)


def test_a_session_with_the_provider_is_accepted() -> None:
    check_registered(CUDA, [CUDA, CPU], NO_LIBRARIES)


def test_a_provider_that_does_not_start_is_an_error_in_the_words_of_onnxruntime() -> None:
    with pytest.raises(TimingError) as error:
        check_registered(CUDA, [CPU], NO_LIBRARIES)

    assert str(error.value).startswith(
        "cuda was asked for, but onnxruntime cannot start it and would run on cpu: libonnxruntime_providers_cuda.so: "
        "libcublasLt.so.13: cannot open shared object file: No such file or directory. Failed to create "
        "CUDAExecutionProvider. Require cuDNN 9.* and CUDA 13.*. What helps: "
    )
    assert "onnxruntime-gpu[cuda,cudnn]" in str(error.value)


def test_a_reason_has_no_hosts_sources_or_colours() -> None:
    assert reason(NO_DEVICE) == "CUDA failure 100: no CUDA-capable device is detected ; GPU=-1."


def test_a_reason_is_short_and_each_is_reported_once() -> None:
    log = "2026-01-01 00:00:00.1 [E:onnxruntime:, a.cc:1 F] Failed to " + "x" * 1000 + "\n"

    assert len(reason(log * 5)) == 300


def test_lines_that_are_no_records_give_no_reason() -> None:
    assert reason("Failed to load library\n2026-01-01 00:00:00.1 [I:onnxruntime:, a.cc:1 F] Failed\n") == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "/onnxruntime_src/onnxruntime/python/onnxruntime_pybind_state.cc:729 void onnxruntime::python::Register("
            "PySessionOptions&, const onnxruntime::ProviderOptions&) Please install TensorRT libraries as mentioned in "
            "the GPU requirements page, make sure they're in the PATH.",
            "Please install TensorRT libraries, make sure they're in the PATH.",
        ),
        (NO_DEVICE.partition("] ")[2], "CUDA failure 100: no CUDA-capable device is detected ; GPU=-1."),
        ("CUDA failure 2: out of memory ; GPU=0 ; hostname=a", ""),
        ("[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model.", ""),
    ],
)
def test_an_exception_about_the_device_is_distinguished_from_one_about_the_model(
    text: str, expected: str
) -> None:
    assert start_failure(text) == expected


def test_a_provider_without_a_message_is_reported_too() -> None:
    with pytest.raises(TimingError, match="onnxruntime gives no reason"):
        check_registered("OpenVINOExecutionProvider", [CPU], "")


def test_a_reason_cannot_reach_the_terminal_as_an_escape_sequence() -> None:
    log = "2026-01-01 00:00:00.1 [E:onnxruntime:, a.cc:1 F] Failed to \x07 ring\n"

    assert reason(log) == "Failed to \\x07 ring."


def test_a_provider_that_runs_no_kernel_is_an_error() -> None:
    kernels = [kernel("a", "Relu"), kernel("b", "MatMul"), kernel("c", "Relu")]

    with pytest.raises(TimingError) as error:
        check_used(AZURE, kernels)

    assert (
        "azure has started, but takes no node of this model: all 3 kernels ran on cpu (MatMul, Relu)"
        in str(error.value)
    )
    assert "--provider cpu" in str(error.value)


def test_a_provider_that_only_copies_has_run_nothing() -> None:
    kernels = [Kernel("Memcpy", "MemcpyToHost", CUDA), Kernel("a", "Relu", CPU)]

    with pytest.raises(TimingError, match="takes no node"):
        check_used(CUDA, kernels)


def test_one_kernel_is_enough() -> None:
    check_used(CUDA, [kernel("a", "Relu"), kernel("b", "MatMul", CUDA)])


def test_a_graph_without_kernels_blames_no_provider() -> None:
    check_used(CUDA, [])


def test_many_operators_are_cut_short() -> None:
    with pytest.raises(TimingError, match=r"\(Op0, Op1, Op2, Op3, Op4 and 3 more\)"):
        check_used(CUDA, [kernel(str(i), f"Op{i}") for i in range(8)])


MIXED = [
    kernel("a", "MatMul", CUDA, 5.0),
    kernel("s0", "Shape", CPU, 0.1),
    kernel("n", "NonZero", CPU, 2.0),
    kernel("s1", "Shape", CPU, 0.3),
    kernel("m", "MemcpyToHost", CUDA, 0.5),
    kernel("m1", "MemcpyFromHost", CUDA, 0.25),
    kernel("m2", "MemcpyToHost", CUDA, 0.75),
]


def test_nodes_that_fell_back_are_listed_by_operator_with_their_time() -> None:
    found = fallbacks(CUDA, MIXED)

    assert [(each.provider, each.op_type, len(each.kernels), each.ms) for each in found] == [
        ("cpu", "NonZero", 1, 2.0),
        ("cpu", "Shape", 2, 0.4),
    ]
    assert [each.name for each in found[1].kernels] == ["s1", "s0"]


def test_copies_between_devices_are_listed_apart() -> None:
    found = copies(MIXED)

    assert [(each.op_type, len(each.kernels), each.ms) for each in found] == [
        ("MemcpyToHost", 2, 1.25),
        ("MemcpyFromHost", 1, 0.25),
    ]


def test_nothing_falls_back_from_the_processor() -> None:
    assert fallbacks(CPU, [replace(each, provider=CPU) for each in MIXED]) == ()


def test_what_tensorrt_leaves_to_cuda_has_fallen_back() -> None:
    trt = "TensorrtExecutionProvider"

    found = fallbacks(trt, [kernel("t", "TRTKernel", trt), kernel("c", "NonZero", CUDA)])

    assert [(each.provider, each.op_type) for each in found] == [("cuda", "NonZero")]


def test_the_order_of_kernels_does_not_matter() -> None:
    assert fallbacks(CUDA, MIXED) == fallbacks(CUDA, MIXED[::-1])
    assert copies(MIXED) == copies(MIXED[::-1])


@pytest.mark.time
def test_a_provider_that_is_there_and_takes_no_node_is_found_out() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if AZURE not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime was built without the azure provider")
    if not hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info"):
        pytest.skip("this onnxruntime is too old to say which provider takes a node")
    from onnx import parser

    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { [a] y = Relu(x) }'
    )
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")

    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=[AZURE, CPU], enable_fallback=0
    )

    check_registered(AZURE, session.get_providers(), "")
    kernels = [
        Kernel(node.name, node.op_type, part.ep_name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]
    with pytest.raises(TimingError, match="azure has started, but takes no node of this model"):
        check_used(AZURE, kernels)
