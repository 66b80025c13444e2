"""Answers of onnxledger to each hostile file, with CPU and memory, beside those of `onnx.load` and `onnx.checker`.

    python benchmarks/bench_hostile.py --markdown docs/evidence/hostile.md

The generator of the external cases (`../shared/hostile/make.py`, or below `$ONNXLEDGER_CASES`) makes the files anew.
Every run is a separate process with limits. The last lines list the promises that were broken, and the exit code is 1
if there are any.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hostile import CANARY, Case, make_corpus, state, unsafe_characters  # noqa: E402 - a module of the tests

SECONDS, MIB = 5, 300
"""Limits of one answer: CPU time, and memory beyond that of the imports."""

OUR_TIMEOUT, PEER_TIMEOUT = 20, 10
DATA_LIMIT = 8 << 30
"""Bytes that a process may allocate, because other processes use the machine, too."""

SENTENCE = 150
"""Most characters of an answer in the table."""

OTHERS = {
    "inspect -o page.html": ["inspect", "{case}", "-o", "{out}/page.html"],
    "cost": ["cost", "{case}"],
    "cost --memory": ["cost", "{case}", "--memory", "1GiB"],
    "compare": ["compare", "{case}", "{case}", "--content", "sampled"],
    "check": ["check", "{case}", "--max-parameters", "1M", "--max-macs", "1G", "--no-duplicates"],
    "graph": ["graph", "{case}", "-o", "{out}/graph.dot"],
    "recover": ["recover", "{case}", "-o", "{out}/state.safetensors"],
    "reconcile": ["reconcile", "{case}", "--against", "{weights}"],
    "verify": ["verify", "{case}", "--against", "{valid}"],
    "verify --static": ["verify", "{case}", "--against", "{case}", "--static"],
    "formula": ["formula", "bert-base-uncased", "--against", "{case}"],
    "survey": ["survey", "{case}", "-o", "{out}/lake"],
    "show": ["show", "{case}"],
}
"""Commands besides `inspect`; one table has the worst case of each."""

PEERS = {
    "load": "onnx.load(path, load_external_data=False)",
    "load_external": "onnx.load(path)",
    "check": "onnx.checker.check_model(path)",
}
PEER = """
import sys, onnx
path = sys.argv[1]
try:
    {call}
except MemoryError:
    print("MemoryError")
except Exception as error:
    print(type(error).__name__)
else:
    print("ok")
"""
INTRODUCTION = """# Hostile files

The answers of `onnxledger inspect` to {cases} files that are broken on purpose, and the time and memory of each, from
`python benchmarks/bench_hostile.py --markdown docs/evidence/hostile.md`. The program fails if an answer takes over
{seconds} s of CPU or {mib} MiB beyond the imports, has an exit code other than 0, 1 or 2, prints a traceback or a
character that could control a terminal, opens a file outside the model's folder, or changes anything.
`tests/test_hostile.py` tests the answers.

`onnx.load`: without external data, then with it. `onnx.checker`: `check_model(path)`. *hang*: stopped after
{peer_timeout} s. Memory is shown if it is over {noted} MiB. onnxledger {ours}, onnx {onnx}, protobuf {protobuf}, Python
{python}. A process may allocate {limit} GiB; beyond that it gets a `MemoryError`.
"""
NOTED = 100


@dataclass(frozen=True, slots=True)
class Run:
    """One process, from its start to its end."""

    code: int  # negative: the signal that ended it
    stdout: bytes
    stderr: bytes
    wall: float
    cpu: float
    peak: float  # MiB resident
    is_hung: bool

    @property
    def text(self) -> str:
        return (self.stdout + self.stderr).decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Other:
    """Results of one command over all cases."""

    name: str
    codes: dict[int, int]
    cpu: tuple[float, str]  # the most, and the case
    mib: tuple[float, str]  # the same, beyond a tiny valid model
    broken: list[str]


@dataclass(frozen=True, slots=True)
class Row:
    case: Case
    answer: str
    cpu: float
    mib: float  # beyond the imports
    peers: dict[str, str]
    broken: list[str]  # promises


def main() -> None:
    options = arguments()
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT)))),
        "COLUMNS": "120",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        corpus, weights = Path(folder, "corpus"), Path(folder, "weights.safetensors")
        cases = make_corpus(corpus, big=True)
        save_file(
            {"layer.weight": np.ones((32, 32), np.float32), "layer.bias": np.zeros(32, np.float32)}, weights
        )
        before = state(corpus)
        baseline = Baseline.measure(corpus / "valid_base.onnx")
        chosen = [case for case in cases if not options.only or re.search(options.only, case.id)]
        rows = []
        for case in chosen if not options.command else ():
            rows.append(inspect_case(case, corpus, baseline, options.peers))
            print(line(rows[-1]), file=sys.stderr, flush=True)
        others = [
            run_over_cases(name, command, chosen, corpus / "valid_base.onnx", weights)
            for name, command in OTHERS.items()
            if not options.command or re.search(options.command, name)
        ]
        changed = sorted(
            key for key in before.keys() | state(corpus) if before.get(key) != state(corpus).get(key)
        )
    broken = [f"{row.case.id}: {promise}" for row in rows for promise in row.broken]
    broken += [f"{other.name}: {promise}" for other in others for promise in other.broken]
    broken += [f"{key}: was changed, or made" for key in changed]
    document = "\n".join([introduction(len(rows)).rstrip(), *sections(rows), *commands(others), ""])
    if options.markdown:
        options.markdown.write_text(document, encoding="utf-8")
    else:
        print(document)
    print(*(broken or ["every promise holds"]), sep="\n", file=sys.stderr)
    sys.exit(bool(broken))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="a regular expression that a case's id must match")
    parser.add_argument("--command", help="only other commands: a regular expression that they must match")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="onnxledger alone")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser.parse_args()


def run(command: list[str], timeout: float) -> Run:
    """Run a command with limits; its output goes to files, so that no pipe can be full."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd="/",
            preexec_fn=limit,
            start_new_session=True,
        )
        hung = threading.Event()

        def stop() -> None:
            hung.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(timeout, stop)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        wall = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        unit = 1 if sys.platform == "darwin" else 1024
        return Run(
            process.returncode,
            out.read(),
            err.read(),
            wall,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss * unit / 2**20,
            hung.is_set(),
        )


def limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_LIMIT, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def inspect(path: Path, style: str) -> list[str]:
    return [sys.executable, "-m", "analyzer", "inspect", str(path), "--format", style]


@dataclass(frozen=True, slots=True)
class Baseline:
    """Memory and paths of an inspect of a tiny valid model: nearly those of the imports alone."""

    peak: float
    peer_peaks: dict[str, float]
    paths: frozenset[str]
    """Paths that Python opens or examines; empty without strace."""

    @classmethod
    def measure(cls, tiny: Path) -> Baseline:
        peak = min(run(inspect(tiny, "json"), OUR_TIMEOUT).peak for _ in range(3))
        peers = {name: run(peer(name, tiny), PEER_TIMEOUT).peak for name in PEERS}
        return cls(peak, peers, frozenset(find_accessed_paths(tiny)))


def peer(name: str, path: Path) -> list[str]:
    return [sys.executable, "-c", PEER.format(call=PEERS[name]), str(path)]


def inspect_case(case: Case, corpus: Path, baseline: Baseline, peers: bool) -> Row:
    runs = {style: run(inspect(case.path, style), OUR_TIMEOUT) for style in ("json", "text")}
    mib = max(r.peak for r in runs.values()) - baseline.peak
    broken = [f"{style}: {promise}" for style, r in runs.items() for promise in broken_promises(r)]
    if runs["json"].code != runs["text"].code:
        broken.append(f"exits {runs['json'].code} as JSON and {runs['text'].code} as text")
    if mib > MIB:
        broken.append(f"took {mib:,.0f} MiB beyond the imports")
    outside = find_accessed_paths(case.path) - baseline.paths
    broken += [what.replace(str(corpus), "...") for what in sorted(outside) if not is_allowed(what, case)]
    others = {name: peer_answer(name, case.path, baseline) for name in PEERS} if peers else {}
    cpu = max(r.cpu for r in runs.values())
    return Row(case, answer(runs["json"], case, corpus), cpu, max(0.0, mib), others, broken)


def run_over_cases(name: str, command: list[str], cases: list[Case], valid: Path, weights: Path) -> Other:
    """Return one command's answers to all cases, and the most that an answer takes."""

    def run_case(path: Path) -> Run:
        with tempfile.TemporaryDirectory(prefix="hostile-out-") as out:
            command_line = [part.format(case=path, out=out, valid=valid, weights=weights) for part in command]
            return run([sys.executable, "-m", "analyzer", *command_line], OUR_TIMEOUT)

    usual_peak = run_case(valid).peak
    codes: Counter[int] = Counter()
    cpu, mib, broken = (0.0, ""), (0.0, ""), []
    for case in cases:
        result = run_case(case.path)
        excess = result.peak - usual_peak
        promises = broken_promises(result)
        promises += [f"took {excess:,.0f} MiB beyond a tiny model"] if excess > MIB else []
        broken += [f"{case.id}: {promise}" for promise in promises]
        codes[result.code] += 1
        cpu, mib = max(cpu, (result.cpu, case.id)), max(mib, (excess, case.id))
    found = Other(name, dict(sorted(codes.items())), cpu, mib, broken)
    print(found, file=sys.stderr, flush=True)
    return found


def commands(others: list[Other]) -> list[str]:
    """Return the table of the other commands."""
    if not others:
        return []
    rows = [
        "",
        "## Other commands",
        "",
        "The same files with other commands: the number of exits with 0, 1 and 2, and the largest time and memory.",
        "",
    ]
    rows += [
        "| command | 0 | 1 | 2 | CPU s | of | MiB | of |",
        "| --- | --: | --: | --: | --: | --- | --: | --- |",
    ]
    for other in others:
        codes = " | ".join(str(other.codes.get(code, 0)) for code in (0, 1, 2))
        (cpu, slowest), (mib, largest) = other.cpu, other.mib
        rows.append(
            f"| `{other.name}` | {codes} | {cpu:.1f} | `{slowest}` | {max(mib, 0):,.0f} | `{largest}` |"
        )
    return rows


def broken_promises(result: Run) -> list[str]:
    broken = []
    if result.is_hung:
        broken.append(f"hung for {OUR_TIMEOUT} s")
    elif result.code not in (0, 1, 2):
        broken.append(f"exit code {result.code}")
    if result.cpu > SECONDS:
        broken.append(f"took {result.cpu:.1f} s of CPU")
    if "Traceback" in result.text or "internal error" in result.text:
        broken.append(f"internal error: {result.text.strip().rpartition(chr(10))[2][:200]}")
    if unsafe := unsafe_characters(result.text):
        broken.append(f"prints {sorted(map(ascii, unsafe))}")
    if CANARY in result.stdout + result.stderr:
        broken.append("prints the canary")
    if len(result.stdout) + len(result.stderr) > 64 << 20:
        broken.append(f"prints {(len(result.stdout) + len(result.stderr)) / 2**20:.0f} MiB")
    return broken


def find_accessed_paths(path: Path) -> set[str]:
    """Return the paths outside the model's folder that an inspect opens or examines.

    They are "open /path", "look at /path", or "connect" for any network address; empty if strace is missing.
    """
    if not shutil.which("strace"):
        return set()
    with tempfile.NamedTemporaryFile(prefix="strace-", suffix=".log") as log:
        calls = "trace=%file,connect"
        command = ["strace", "-f", "-qq", "-s", "4096", "-e", calls, "-o", log.name, *inspect(path, "json")]
        run(command, 2 * OUR_TIMEOUT)
        text = log.read().decode("utf-8", "surrogateescape")
    found = {
        f"{'open' if call.startswith('open') else 'look at'} {place}" for call, place in CALL.findall(text)
    }
    found |= {"connect"} if "connect(" in text else set()
    return {what for what in found if not _is_own(what.partition("/")[1] + what.partition("/")[2], path)}


CALL = re.compile(r'(\w+)\((?:AT_FDCWD, )?"(/(?:[^"\\]|\\.)*)"')


def _is_own(found: str, path: Path) -> bool:
    """Whether a path is Python's, in the model's folder, or above it: resolving the path examines each folder."""
    place = os.path.normpath(found)
    is_python = Path(place).is_relative_to(sys.prefix) or Path(place).is_relative_to(sys.base_prefix)
    return is_python or Path(place).is_relative_to(path.parent) or path.is_relative_to(place)


def is_allowed(what: str, case: Case) -> bool:
    """Whether a case may access a path beyond its folder.

    A hub cache's links lead to its blobs, a model may be a link itself, and links are followed to the end before it is
    known that they lead outside.
    """
    place = what.rpartition(" ")[2]
    if case.id == "ext_hf_cache":
        return "/hf_cache/blobs" in place or place.endswith("/hf_cache")
    if case.path.is_symlink():
        return place == str(case.path.readlink())
    return what.startswith("look at") and any(link.is_symlink() for link in case.path.parent.iterdir())


def answer(result: Run, case: Case, corpus: Path) -> str:
    """Return the sentence of a refusal, or the count and the findings."""
    if result.is_hung:
        return f"hung for {OUR_TIMEOUT} s"
    if result.code < 0:
        return signal.Signals(-result.code).name
    if not result.stdout:
        first = result.stderr.decode("utf-8", "surrogateescape").strip().partition("\n")[0]
        first = first.removeprefix("onnxledger: ").replace(f"{case.path}: ", "").replace(f"{corpus}/", "")
        return f"exit {result.code}: {first}"
    report = json.loads(result.stdout)
    totals = report["totals"]
    ids = list(dict.fromkeys(finding["id"] for finding in report["findings"]))
    return f"{totals['stored_elements']:,} elements; {', '.join(ids) or 'no findings'}"


def peer_answer(name: str, path: Path, baseline: Baseline) -> str:
    result = run(peer(name, path), PEER_TIMEOUT)
    mib = result.peak - baseline.peer_peaks[name]
    memory = f", {round(mib, -1):,.0f} MiB" if mib >= NOTED else ""
    if result.is_hung:
        return f"hang{memory}"
    if result.code < 0:
        return f"{signal.Signals(-result.code).name}{memory}"
    words = result.stdout.decode("utf-8", "replace").split()
    return f"{words[-1] if words else f'exit {result.code}'}{memory}"


def line(row: Row) -> str:
    mark = "  BROKEN: " + "; ".join(row.broken) if row.broken else ""
    return f"{row.case.id:24} {row.cpu:5.1f} s {row.mib:6.0f} MiB  {ascii(row.answer)[:150]}{mark}"


def introduction(cases: int) -> str:
    return INTRODUCTION.format(
        cases=cases,
        seconds=SECONDS,
        mib=MIB,
        peer_timeout=PEER_TIMEOUT,
        noted=NOTED,
        ours=version("onnxledger"),
        onnx=version("onnx"),
        protobuf=version("protobuf"),
        python=platform.python_version(),
        limit=DATA_LIMIT >> 30,
    )


TITLES = {
    "control": "Controls",
    "notmodel": "No model",
    "sizes": "Sizes and types that lie",
    "external": "External data",
    "structure": "Structure",
    "names": "Names",
    "volume": "Volume",
    "wire": "Wire format",
    "file": "The file itself",
}
COLUMNS = ("case", "what it is", "our answer", "CPU s", "MiB", "onnx.load", "onnx.checker")


def sections(rows: list[Row]) -> Iterable[str]:
    for group, title in TITLES.items():
        of_group = [row for row in rows if row.case.group == group]
        if of_group:
            yield f"\n## {title}\n"
            yield table(of_group)


def table(rows: list[Row]) -> str:
    lines = [COLUMNS, ("---", "---", "---", "--:", "--:", "---", "---")]
    for row in rows:
        load, external = row.peers.get("load", ""), row.peers.get("load_external", "")
        lines.append(
            (
                f"`{row.case.id}`",
                escaped(row.case.what),
                escaped(row.answer),
                f"{row.cpu:.1f}",
                f"{round(row.mib, -1):.0f}",
                load if load == external else f"{load}; {external}",
                row.peers.get("check", ""),
            )
        )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escaped(text: str) -> str:
    """Make third-party text short, printable and free of markup, for a table cell."""
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
    if len(text) > SENTENCE:
        text = text[: SENTENCE - 1].rstrip() + "…"
    return (
        re.sub(r"([\\`*_\[\]|~])", r"\\\1", text)
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )


if __name__ == "__main__":
    main()
