"""An execution provider's name on the command line -> the providers of a session, and how to install them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from analyzer.errors import MissingExtraError, TimingError, UsageError
from analyzer.records import Frozen
from analyzer.timing.request import CPU

_SUFFIX = "ExecutionProvider"
_CUDA = (
    'pip install "onnxruntime-gpu[cuda,cudnn]" brings the CUDA and cuDNN libraries that it was built for, and the '
    "driver of the GPU must be as new as that CUDA"
)
_UNINSTALL = "pip uninstall onnxruntime, then "
_GPU = f'{_UNINSTALL}pip install "onnxledger[time-gpu]"; {_CUDA}'
_TENSORRT = "and TensorRT's libraries must be where the system looks for libraries, such as LD_LIBRARY_PATH"
_BUILD = (
    "no wheel of onnxruntime has it: build onnxruntime with it (https://onnxruntime.ai/docs/build/eps.html)"
)


class _Provider(Frozen):
    """An execution provider that onnxruntime can be built with."""

    name: str
    """Name in onnxruntime, without its suffix."""
    install: str
    """Instruction to install it."""
    extra: str = ""
    """Extra of onnxledger that brings an onnxruntime with it, if there is one."""
    needs: str = ""
    """Requirements to start it on a machine."""
    aliases: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    """Providers that get the nodes that it cannot run, before the processor."""
    cuda: bool = False
    """Whether it runs CUDA kernels on an Nvidia GPU."""
    compiles: bool = False
    """Whether it compiles whole parts of the graph to one kernel each; onnxruntime refuses to write such a graph."""
    unsupported_options: tuple[str, ...] = ()
    """Options that would keep the profile from timing kernels, or that are addresses in memory."""


def _instead(package: str, note: str = "") -> str:
    return f"{_UNINSTALL}pip install {package}{note}"


_POINTERS = (
    "gpu_external_alloc",
    "gpu_external_empty_cache",
    "gpu_external_free",
    "has_user_compute_stream",
    "user_compute_stream",
)
_PROVIDERS = (
    _Provider("CPU", 'pip install "onnxledger[time]"', "time"),
    _Provider(
        "CUDA", _GPU, "time-gpu", _CUDA, cuda=True, unsupported_options=("enable_cuda_graph", *_POINTERS)
    ),
    _Provider(
        "Tensorrt",
        f"{_GPU}, {_TENSORRT}",
        "time-gpu",
        f"{_CUDA}, {_TENSORRT}",
        aliases=("trt",),
        then=("CUDA",),
        cuda=True,
        unsupported_options=("trt_cuda_graph_enable", *_POINTERS),
        compiles=True,
    ),
    _Provider(
        "NvTensorRTRTX",
        _instead("onnxruntime-trt-rtx"),
        needs=_TENSORRT.removeprefix("and "),
        aliases=("nvtensorrtrtx", "tensorrtrtx", "trtrtx"),
        then=("CUDA",),
        cuda=True,
        unsupported_options=("enable_cuda_graph", *_POINTERS),
        compiles=True,
    ),
    _Provider("OpenVINO", _instead("onnxruntime-openvino"), compiles=True),
    _Provider("ROCM", _instead("onnxruntime-rocm", ", which needs ROCm"), unsupported_options=_POINTERS),
    _Provider(
        "MIGraphX", _instead("onnxruntime-migraphx", ", which needs ROCm"), then=("ROCM",), compiles=True
    ),
    _Provider("CoreML", "onnxruntime has it on macOS only", "time", compiles=True),
    _Provider("Dml", _instead("onnxruntime-directml", ", on Windows"), aliases=("directml",)),
    _Provider("QNN", _instead("onnxruntime-qnn", ", on a Qualcomm processor"), compiles=True),
    _Provider("WebGpu", _instead("onnxruntime-webgpu")),
    _Provider("Xnnpack", _BUILD),
    _Provider("Dnnl", _BUILD, aliases=("onednn",), compiles=True),
    _Provider("ACL", _BUILD),
    _Provider("ArmNN", _BUILD),
    _Provider("Azure", 'pip install "onnxledger[time]"', "time"),
    _Provider("CANN", _instead("onnxruntime-cann", ", for Ascend processors")),  # codespell:ignore cann
    _Provider("Js", _BUILD),
    _Provider("Nnapi", _BUILD, compiles=True),
    _Provider("Rknpu", _BUILD, compiles=True),
    _Provider("Tvm", _BUILD, compiles=True),
    _Provider("VSINPU", _BUILD, compiles=True),
    _Provider("VitisAI", _BUILD, compiles=True),
    _Provider("WebNN", _BUILD, compiles=True),
)
_BY_NAME = {f"{provider.name}{_SUFFIX}": provider for provider in _PROVIDERS}


def provider_name(text: str, known: Iterable[str] = ()) -> str:
    """Return onnxruntime's name for a provider; `known` are additional names, such as a plug-in's.

    >>> provider_name("cuda"), provider_name("OpenVINOExecutionProvider"), provider_name("DirectML")
    ('CUDAExecutionProvider', 'OpenVINOExecutionProvider', 'DmlExecutionProvider')

    Raises:
        UsageError: there is none of that name.
    """
    from analyzer.text import printable  # render imports this module

    names = {_plain(name): name for name in known}
    for name, provider in _BY_NAME.items():
        names |= dict.fromkeys((_plain(name), *provider.aliases), name)
    plain = _plain(text)
    if plain in names:
        return names[plain]
    near = difflib.get_close_matches(plain, names, n=1)
    guess = f": did you mean {short_name(names[near[0]])}?" if near else ""
    listed = ", ".join(sorted({short_name(name) for name in names.values()}))
    raise UsageError(f'--provider: onnxruntime has no "{printable(text)}"{guess} (it knows {listed})')


def short_name(name: str) -> str:
    """Return a provider's name on the command line.

    >>> short_name("CUDAExecutionProvider")
    'cuda'
    """
    return name.removesuffix(_SUFFIX).lower()


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]", "", text.strip()).lower().removesuffix(_SUFFIX.lower())


def chain(
    name: str, available: Iterable[str], options: Sequence[tuple[str, str]] = ()
) -> list[tuple[str, dict[str, str]]]:
    """Return a session's providers, in the order in which they take nodes: the requested one, its kin, the processor.

    >>> chain("TensorrtExecutionProvider", ["CUDAExecutionProvider"], [("device_id", "1")])[1:]
    [('CUDAExecutionProvider', {'device_id': '1'}), ('CPUExecutionProvider', {})]
    """
    if name == CPU:
        return [(CPU, {})]
    then = _BY_NAME[name].then if name in _BY_NAME else ()
    kin = {f"{other}{_SUFFIX}" for other in then} & set(available)
    device = {key: value for key, value in options if key == "device_id"}
    return [(name, dict(options)), *((other, dict(device)) for other in sorted(kin)), (CPU, {})]


def whole_chain(name: str, available: Iterable[str]) -> list[tuple[str, dict[str, str]]]:
    """Return the chain with the full precision of the file's types: CUDA's default of TF32 for FLOAT products is off.

    >>> whole_chain("CUDAExecutionProvider", [])[0]
    ('CUDAExecutionProvider', {'use_tf32': '0'})
    """
    exact = {f"CUDA{_SUFFIX}": {"use_tf32": "0"}}
    return [(each, {**options, **exact.get(each, {})}) for each, options in chain(name, available)]


def binding_device(name: str) -> str | None:
    """Return I/O binding's name of the device that holds inputs before the clock starts; None for the host's memory."""
    return "cuda" if name in _BY_NAME and _BY_NAME[name].cuda else None


def saves_graph(name: str) -> bool:
    """Whether onnxruntime can write the optimized graph with this provider.

    If it cannot and is asked to, it makes no session at all.
    """
    return not (name in _BY_NAME and _BY_NAME[name].compiles)


def blocking_environment(name: str) -> dict[str, str]:
    """Return variables for a process in which kernel calls return when the device is done, not when work is queued.

    The variables are read at the first use of the device, so the process has to be started with them. They stop the
    host from working ahead of the device, so nothing else should be measured in that process.
    """
    if name in _BY_NAME and _BY_NAME[name].cuda:
        return {"CUDA_LAUNCH_BLOCKING": "1"}
    return {"AMD_SERIALIZE_KERNEL": "3"} if short_name(name) in {"migraphx", "rocm"} else {}


def check_installed(name: str, available: Iterable[str]) -> None:
    """Refuse a provider that the installed onnxruntime was built without.

    Raises:
        TimingError: the provider is missing; the message has the available ones, and how to install it.
    """
    there = tuple(available)
    if name in there:
        return
    raise TimingError(
        f"the onnxruntime that is installed cannot run on {short_name(name)}, only on "
        f"{', '.join(short_name(other) for other in there)}; for {short_name(name)}: {how_to_install(name)}"
    )


def missing(name: str) -> MissingExtraError | TimingError:
    """Return the error for a machine without onnxruntime; it does not advise to uninstall anything."""
    provider = _BY_NAME.get(name, _BY_NAME[CPU])  # any onnxruntime can load a plug-in
    purpose = "timing a model" if name == CPU else f"timing a model on {short_name(name)}"
    if provider.extra:
        return MissingExtraError(provider.extra, "onnxruntime", purpose)
    how = provider.install.removeprefix(_UNINSTALL)
    return TimingError(f"{purpose} needs onnxruntime, which is not installed: {how}")


def how_to_install(name: str) -> str:
    """Return how to make a provider available, as the end of a sentence."""
    return _BY_NAME[name].install if name in _BY_NAME else "register its library with onnxruntime"


def what_it_needs(name: str) -> str:
    """Return what an installed provider needs to start, as the end of a sentence."""
    needs = _BY_NAME[name].needs if name in _BY_NAME else ""
    return needs or "https://onnxruntime.ai/docs/execution-providers says what it needs of the machine"


def parse_options(name: str, texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parse a provider's options from `key=value`, sorted; onnxruntime itself checks the keys.

    >>> parse_options("CUDAExecutionProvider", ["use_tf32=0", "device_id=1"])
    (('device_id', '1'), ('use_tf32', '0'))

    Raises:
        UsageError: one has another form, or would spoil the measurement.
    """
    from analyzer.text import printable  # render imports this module

    options: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        shown = printable(text)
        if not equals or not re.fullmatch(r"[A-Za-z][\w.]*", key) or not value.isprintable():
            raise UsageError(f'--provider-option "{shown}": write it as key=value')
        if name == CPU:
            raise UsageError(
                f'--provider-option "{shown}": cpu has no options; see --threads and --optimization'
            )
        if key in options:
            raise UsageError(f'--provider-option "{shown}": {key} is given twice')
        if key == "device_id" and not re.fullmatch(r"[0-9]{1,4}", value):
            raise UsageError(f'--provider-option "{shown}": device_id is the number of a device, from 0')
        if (
            name in _BY_NAME
            and key in _BY_NAME[name].unsupported_options
            and value.lower() not in {"0", "false"}
        ):
            raise UsageError(f'--provider-option "{shown}": {_why_not(key)}')
        options[key] = value
    return tuple(sorted(options.items()))


def _why_not(key: str) -> str:
    if "graph" in key:
        return "a CUDA graph is launched as a whole, so that no node has a time of its own"
    return "its value is an address within a process, which another process cannot give"
