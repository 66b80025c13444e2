"""The machine and what a child process says of itself -> where a timing was taken."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from analyzer.process.workers import usable_processors
from analyzer.timing.record import Environment, TimingSettings
from analyzer.timing.request import Reply
from analyzer.timing.running.gpu import Gpu, cuda_gpu, library_versions
from analyzer.timing.running.providers import CPU, binding_device

__all__ = [
    "clocks_now",
    "default_threads",
    "device_name",
    "environment",
    "precision_notes",
    "processor_clocks",
    "processor_name",
    "software",
]

_CPUINFO = Path("/proc/cpuinfo")
_CPUFREQ = Path("/sys/devices/system/cpu")


def environment(
    settings: TimingSettings,
    reply: Reply,
    provider: str,
    precision: Sequence[tuple[str, float]],
) -> Environment:
    """Where a reply was made.

    Args:
        provider: as onnxruntime calls it.
        precision: (dtype, share of the parameters stored in it), the largest first.
    """
    dtypes = {dtype for dtype, _ in precision}
    notes = precision_notes(provider, settings.provider_options, reply.versions, dtypes)
    return Environment(
        device=reply.device or processor_name(),
        providers=reply.providers,
        versions=reply.versions,
        threads=settings.threads or default_threads(),
        cores=usable_processors(),
        precision=tuple(precision),
        clocks=reply.clocks,
        load_ms=reply.load_ms,
        peak_rss_nbytes=reply.peak_rss_nbytes,
        kernel_clock=reply.kernel_clock,
        messages=(*reply.messages, *notes),
        order=reply.order,
    )


def device_name(provider: str, options: Sequence[tuple[str, str]] = ()) -> str:
    """The name of what a provider runs on. A provider of which that cannot be told is said to be one of the machine."""
    if provider == CPU:
        return processor_name()
    if binding_device(provider) is not None:
        gpu = _gpu(options)
        return gpu.name if gpu else "an Nvidia GPU"
    return f"a device of this machine, whose processor is {processor_name()}"


def clocks_now(provider: str, options: Sequence[tuple[str, str]] = ()) -> tuple[tuple[str, float], ...]:
    """(clock, MHz) at this moment. For the clocks of a GPU at work, ask before its process lets go of it."""
    gpu = _gpu(options) if binding_device(provider) is not None else None
    return (*(gpu.clocks if gpu else ()), *processor_clocks())


def software(
    onnxruntime: ModuleType, provider: str, options: Sequence[tuple[str, str]] = ()
) -> tuple[tuple[str, str], ...]:
    """(software, version), to be asked once the session exists: only then are the libraries of a GPU loaded."""
    package = str(getattr(onnxruntime, "package_name", "") or "onnxruntime")
    versions = [(package, str(onnxruntime.__version__)), ("Python", platform.python_version())]
    if binding_device(provider) is None:
        return tuple(versions)
    build = str(getattr(onnxruntime, "cuda_version", "") or "")
    gpu = _gpu(options)
    versions += [("CUDA of the build", build)] if build else []
    versions += library_versions()
    versions += [("driver", gpu.driver)] if gpu and gpu.driver else []
    versions += [(_CAPABILITY, gpu.capability)] if gpu and gpu.capability else []
    return tuple(versions)


_CAPABILITY = "CUDA capability"


def _gpu(options: Sequence[tuple[str, str]]) -> Gpu | None:
    return cuda_gpu(int(dict(options).get("device_id", "0")))


_REDUCED = {
    "trt_bf16_enable": "BFLOAT16",
    "trt_fp16_enable": "FLOAT16",
    "trt_fp8_enable": "FLOAT8",
    "trt_int8_enable": "INT8",
    "migraphx_bf16_enable": "BFLOAT16",
    "migraphx_fp16_enable": "FLOAT16",
    "migraphx_fp8_enable": "FLOAT8",
    "migraphx_int8_enable": "INT8",
}


def precision_notes(
    provider: str,
    options: Sequence[tuple[str, str]],
    versions: Sequence[tuple[str, str]],
    dtypes: set[str],
) -> tuple[str, ...]:
    """Where a provider computes with fewer bits than the file stores."""
    given = dict(options)
    notes = [
        f"{dtype} is allowed by {key}: kernels may compute in it whatever the file stores"
        for key, dtype in _REDUCED.items()
        if given.get(key, "0").lower() in {"1", "true"}
    ]
    if given.get("precision"):
        notes.append(f"precision={given['precision']}: kernels compute in it whatever the file stores")
    capability = dict(versions).get(_CAPABILITY)
    if (
        provider == "CUDAExecutionProvider"
        and "FLOAT" in dtypes
        and capability
        and float(capability) >= 8
        and given.get("use_tf32", "1") != "0"
    ):
        notes.append(
            "TF32 is on: this GPU rounds the factors of FLOAT matrix products and convolutions to 10 bits of mantissa; "
            "--provider-option use_tf32=0 turns it off"
        )
    return tuple(notes)


def processor_name(cpuinfo: Path = _CPUINFO, system: str = sys.platform) -> str:
    """The processor as its maker names it, else its architecture."""
    if system == "darwin":
        return _said(("sysctl", "-n", "machdep.cpu.brand_string")) or platform.machine()
    if system == "win32":
        return _registered() or platform.processor() or platform.machine()
    values = _cpuinfo(cpuinfo)
    for key in ("model name", "Model", "Hardware", "cpu model", "cpu"):  # x86, Arm boards, MIPS, POWER
        if key in values:
            return " ".join(values[key][0].split())
    return platform.processor() or platform.machine() or "unknown processor"


def default_threads(cpuinfo: Path = _CPUINFO) -> int:
    """How many threads onnxruntime takes unless told: one for each physical core, as far as these can be told."""
    values = _cpuinfo(cpuinfo)
    cores = list(zip(values.get("physical id", ()), values.get("core id", ()), strict=False))
    return len(set(cores)) if cores else usable_processors()


def processor_clocks(cpuinfo: Path = _CPUINFO, cpufreq: Path = _CPUFREQ) -> tuple[tuple[str, float], ...]:
    """The clock of the fastest core at this moment, in MHz: those that idle are slower. () where it is not told."""
    found = [float(value) for value in _cpuinfo(cpuinfo).get("cpu MHz", ()) if re.fullmatch(r"[\d.]+", value)]
    if not found:
        for path in sorted(cpufreq.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")):
            text = _text(path).strip()
            found += [int(text) / 1000] if text.isdecimal() else []
    return (("processor", round(max(found), 3)),) if found else ()


def _cpuinfo(path: Path) -> Mapping[str, list[str]]:
    values: dict[str, list[str]] = {}
    for line in _text(path).splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            values.setdefault(key.strip(), []).append(value.strip())
    return values


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _said(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=2, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _registered() -> str:
    """The processor's name in the registry of Windows."""
    key = r"HKLM\HARDWARE\DESCRIPTION\System\CentralProcessor\0"
    said = _said(("reg", "query", key, "/v", "ProcessorNameString"))
    return " ".join(said.rpartition("REG_SZ")[2].split())
