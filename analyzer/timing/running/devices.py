"""The machine, `nvidia-smi` and CUDA's libraries -> the environment of a timing."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from analyzer.process.workers import usable_processors
from analyzer.records import Frozen
from analyzer.timing.record import Environment, TimingSettings
from analyzer.timing.request import CPU, Reply
from analyzer.timing.running.providers import binding_device

# Commands answer these questions. They may be absent, fail or never return; unknown facts are left out.


CommandRunner = Callable[[Sequence[str]], str | None]
"""A command -> its output; None if it cannot be run, fails, or takes too long."""

_FIELDS = ("index", "uuid", "driver_version", "memory.total", "clocks.sm", "clocks.mem", "mig.mode.current")
_SINCE = ("compute_cap",)
"""Field that drivers before 510 refuse, together with the whole query."""


class Gpu(Frozen):
    """An Nvidia GPU, or the part of one that a process may use."""

    name: str
    uuid: str
    index: str
    """Number in `nvidia-smi`, by position on the bus."""
    driver: str | None
    nbytes: int | None
    """Bytes of memory; None for a part of a GPU, because its share is unknown."""
    clocks: tuple[tuple[str, float], ...]
    """(clock, MHz): `SM` of its multiprocessors, `memory`."""
    capability: str | None
    """CUDA's compute capability: `8.0` for Ampere."""
    is_split: bool = False
    """Whether it is in MIG mode, in which a process gets one of its parts."""


def run_command(command: Sequence[str], seconds: float = 2.0) -> str | None:
    """Run a command that is normally quick. A command that hangs in the driver cannot be killed, and is abandoned."""
    program = shutil.which(command[0])
    if program is None:
        return None
    try:
        process = subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
        if process.stdout is not None:
            process.stdout.close()
        return None
    return output.decode(errors="replace") if process.returncode == 0 else None


def cuda_gpu(
    device_id: int, environment: Mapping[str, str] = os.environ, run_command: CommandRunner = run_command
) -> Gpu | None:
    """Return the GPU with CUDA's number `device_id` in a process with these environment variables; None if unknown.

    CUDA numbers the GPUs that `CUDA_VISIBLE_DEVICES` leaves. Unless `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`, it puts the
    fastest first, while `nvidia-smi` goes by position on the bus: with different GPUs in a machine the numbers differ.
    """
    found = _query(run_command)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return _part(_numbered(found, device_id, environment), None, run_command)
    names = [name.strip() for name in visible.split(",")]
    if device_id >= len(names) or not names[device_id] or names[device_id] == "-1":
        return None
    name = names[device_id]
    if name.isdecimal():
        return _part(_numbered(found, int(name), environment), None, run_command)
    if name.startswith("MIG-"):
        return _part(_owner(found, name, run_command), name, run_command)
    matches = [gpu for gpu in found if gpu.uuid.startswith(name)]  # its beginning is enough
    return _part(matches[0], None, run_command) if len(matches) == 1 else None


def _query(run_command: CommandRunner) -> list[Gpu]:
    for fields in ((*_FIELDS, *_SINCE), _FIELDS):
        names = ",".join((*fields, "name"))  # the name last: it may contain commas
        output = run_command(("nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader,nounits"))
        if output is not None:
            rows = [line.split(", ", len(fields)) for line in output.splitlines()]
            return [
                _gpu_of(dict(zip((*fields, "name"), row, strict=True)))
                for row in rows
                if len(row) > len(fields)
            ]
    return []


def _gpu_of(row: dict[str, str]) -> Gpu:
    memory = _number(row["memory.total"])
    clocks = {"SM": _number(row["clocks.sm"]), "memory": _number(row["clocks.mem"])}
    is_split = row["mig.mode.current"].strip() == "Enabled"
    driver, capability = row["driver_version"].strip(), row.get("compute_cap", "").strip()
    return Gpu(
        name=row["name"].strip(),
        uuid=row["uuid"].strip(),
        index=row["index"].strip(),
        driver=driver if re.fullmatch(r"[\d.]+", driver) else None,
        nbytes=None if memory is None or is_split else int(memory) << 20,
        clocks=tuple((clock, mhz) for clock, mhz in clocks.items() if mhz is not None),
        capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
        is_split=is_split,
    )


def _number(text: str) -> float | None:
    """Parse a quantity; None for `[N/A]`, `[Not Supported]`, `ERR!` and the like."""
    try:
        return float(text)
    except ValueError:
        return None


def _numbered(found: Sequence[Gpu], number: int, environment: Mapping[str, str]) -> Gpu | None:
    by_place = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    alike = len({(gpu.name, gpu.nbytes) for gpu in found}) == 1
    if not (by_place or alike):
        return None
    return next((gpu for gpu in found if gpu.index == str(number)), None)


_LISTED = re.compile(
    r"^(?:GPU (?P<gpu>\d+): .*|\s+(?P<part>MIG [^:]+?)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\))"
)


def _parts(run_command: CommandRunner) -> list[tuple[str, str, str]]:
    """Return (index of the GPU, name of its part, UUID) for each part of the GPUs in MIG mode."""
    parts: list[tuple[str, str, str]] = []
    index = ""
    for line in (run_command(("nvidia-smi", "-L")) or "").splitlines():
        listed = _LISTED.match(line)
        if listed and listed["gpu"]:
            index = listed["gpu"]
        elif listed:
            parts.append((index, listed["part"], listed["uuid"]))
    return parts


def _owner(found: Sequence[Gpu], uuid: str, run_command: CommandRunner) -> Gpu | None:
    index = next((index for index, _, known in _parts(run_command) if known.startswith(uuid)), None)
    return next((gpu for gpu in found if gpu.index == index), None)


def _part(gpu: Gpu | None, uuid: str | None, run_command: CommandRunner) -> Gpu | None:
    """Return a GPU, or in MIG mode the part that a process gets: the one with this UUID, else the first."""
    if gpu is None or not gpu.is_split:
        return gpu
    part = next(
        (
            name
            for index, name, known in _parts(run_command)
            if index == gpu.index and known.startswith(uuid or "MIG-")
        ),
        "MIG",
    )
    return Gpu(
        f"{gpu.name} {part}", gpu.uuid, gpu.index, gpu.driver, None, gpu.clocks, gpu.capability, is_split=True
    )


_LIBRARIES = (
    ("CUDA runtime", re.compile(r"/libcudart\.so"), "cudaRuntimeGetVersion", 1000, 10),
    ("cuDNN", re.compile(r"/libcudnn\.so"), "cudnnGetVersion", 10000, 100),
    ("TensorRT", re.compile(r"/libnvinfer\.so"), "getInferLibVersion", 10000, 100),
)


def library_versions(maps: Path = Path("/proc/self/maps")) -> tuple[tuple[str, str], ...]:
    """Return the versions of the CUDA libraries that this process has loaded, from the libraries; () if it has none."""
    try:
        mapped = maps.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    paths = dict.fromkeys(
        line.split(maxsplit=5)[5] for line in mapped if line.count("/") and len(line.split()) > 5
    )
    versions: list[tuple[str, str]] = []
    for name, pattern, function, major, minor in _LIBRARIES:
        path = next((path for path in paths if pattern.search(path)), None)
        number = _call(path, function) if path else None
        if number:
            versions.append((name, library_version(number, major, minor)))
    return tuple(versions)


def _call(path: str, function: str) -> int | None:
    """Return a version from a library's function, either as the result or through a pointer argument."""
    try:
        call = getattr(ctypes.CDLL(path), function)
    except (AttributeError, OSError):
        return None
    if function == "cudaRuntimeGetVersion":
        number = ctypes.c_int()
        return number.value if call(ctypes.byref(number)) == 0 else None
    call.restype = ctypes.c_size_t if function == "cudnnGetVersion" else ctypes.c_int
    return int(call())


def library_version(number: int, major: int, minor: int) -> str:
    """Return a version from its number; `major` and `minor` are the factors of its first two parts.

    >>> library_version(13000, 1000, 10), library_version(91300, 10000, 100)
    ('13.0', '9.13.0')
    """
    rest = number % major
    parts = [number // major, rest // minor, *([rest % minor] if minor > 10 else [])]
    return ".".join(str(part) for part in parts)


_CPUINFO = Path("/proc/cpuinfo")
_CPUFREQ = Path("/sys/devices/system/cpu")


def environment(
    settings: TimingSettings,
    reply: Reply,
    provider: str,
    precision: Sequence[tuple[str, float]],
) -> Environment:
    """Describe the environment of a reply.

    Args:
        settings: the requested settings.
        reply: the reply of the process that ran the model.
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
    """Return the name of the device that a provider runs on; for an unknown device, a description of the machine."""
    if provider == CPU:
        return processor_name()
    if binding_device(provider) is not None:
        gpu = _gpu(options)
        return gpu.name if gpu else "an Nvidia GPU"
    return f"a device of this machine, whose processor is {processor_name()}"


def clocks_now(provider: str, options: Sequence[tuple[str, str]] = ()) -> tuple[tuple[str, float], ...]:
    """Return (clock, MHz) at present. A GPU's clocks under load need a call before its process releases it."""
    gpu = _gpu(options) if binding_device(provider) is not None else None
    return (*(gpu.clocks if gpu else ()), *processor_clocks())


def software(
    onnxruntime: ModuleType, provider: str, options: Sequence[tuple[str, str]] = ()
) -> tuple[tuple[str, str], ...]:
    """Return (software, version). Call it after the session is made: only then are the libraries of a GPU loaded."""
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
    """Return notes on a provider that computes with fewer bits than the file stores."""
    settings = dict(options)
    notes = [
        f"{dtype} is allowed by {key}: kernels may compute in it whatever the file stores"
        for key, dtype in _REDUCED.items()
        if settings.get(key, "0").lower() in {"1", "true"}
    ]
    if settings.get("precision"):
        notes.append(f"precision={settings['precision']}: kernels compute in it whatever the file stores")
    capability = dict(versions).get(_CAPABILITY)
    if (
        provider == "CUDAExecutionProvider"
        and "FLOAT" in dtypes
        and capability
        and float(capability) >= 8
        and settings.get("use_tf32", "1") != "0"
    ):
        notes.append(
            "TF32 is on: this GPU rounds the factors of FLOAT matrix products and convolutions to 10 bits of mantissa; "
            "--provider-option use_tf32=0 turns it off"
        )
    return tuple(notes)


def processor_name(cpuinfo: Path = _CPUINFO, system: str = sys.platform) -> str:
    """Return the maker's name of the processor, else its architecture."""
    if system == "darwin":
        return _command_output(("sysctl", "-n", "machdep.cpu.brand_string")) or platform.machine()
    if system == "win32":
        return _registered() or platform.processor() or platform.machine()
    values = _cpuinfo(cpuinfo)
    for key in ("model name", "Model", "Hardware", "cpu model", "cpu"):  # x86, Arm boards, MIPS, POWER
        if key in values:
            return " ".join(values[key][0].split())
    return platform.processor() or platform.machine() or "unknown processor"


def default_threads(cpuinfo: Path = _CPUINFO) -> int:
    """Return onnxruntime's default number of threads: one for each physical core, as far as these are known."""
    values = _cpuinfo(cpuinfo)
    cores = list(zip(values.get("physical id", ()), values.get("core id", ()), strict=False))
    return len(set(cores)) if cores else usable_processors()


def processor_clocks(cpuinfo: Path = _CPUINFO, cpufreq: Path = _CPUFREQ) -> tuple[tuple[str, float], ...]:
    """Return the current clock of the fastest core, in MHz, because idle cores are slower; () if unknown."""
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


def _command_output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=2, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _registered() -> str:
    """Return the processor's name in the registry of Windows."""
    key = r"HKLM\HARDWARE\DESCRIPTION\System\CentralProcessor\0"
    output = _command_output(("reg", "query", key, "/v", "ProcessorNameString"))
    return " ".join(output.rpartition("REG_SZ")[2].split())
