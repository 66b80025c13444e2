"""Markdown documents -> their console blocks, run in one folder as a reader would run them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kept import keep
from served import serve_commands

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "docs" / "tour.md",
    ROOT / "docs" / "memory.md",
    ROOT / "docs" / "verify.md",
    ROOT / "docs" / "limits.md",
    ROOT / "docs" / "study.md",
    ROOT / "docs" / "groups.md",
    ROOT / "docs" / "budgets.md",
    ROOT / "docs" / "formulas.md",
    ROOT / "docs" / "reference" / "commands.md",
)

_BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """One command of a document, with the output in the document and the actual output."""

    document: Path
    command: str
    expected: str
    found: str

    @property
    def is_fresh(self) -> bool:
        """Whether both outputs are equal, except for differences between machines, and for times between runs."""
        is_measured = self.command.startswith("onnxledger time ")
        expected, found = (
            map(scrub_times, (self.expected, self.found)) if is_measured else (self.expected, self.found)
        )
        return scrub(expected) == scrub(found)


@contextlib.contextmanager
def prepared(folder: Path) -> Iterator[Path]:
    """Yield a folder with the documents' prerequisites: the command on the PATH, and the exports of `make demo`."""
    (folder / "bin").mkdir()
    shim = folder / "bin" / "python3"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    shim.chmod(0o755)
    try:
        with serve_commands(folder / "bin" / "onnxledger", _environment(folder)):

            def export(place: Path) -> None:
                for source, name in (("bert-base-uncased", "bert"), ("albert-base-v2", "albert")):
                    options = f"--class AutoModel --random-weights -o {place / name} --quiet"
                    run(f"onnxledger export {source} {options}", folder)

            kept = keep("analyzer.commands.export", "demo", export)
            shutil.copytree(kept, folder / "build" / "demo", copy_function=_link)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the exports take gigabytes


def _link(source: str, target: str) -> None:
    """Link a file that nobody writes to, instead of copying gigabytes."""
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copy2(source, target)


def _environment(folder: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    return kept | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
    }


def run(command: str, folder: Path) -> str:
    """Run a command line by bash in `folder`, and return its standard output."""
    finished = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "Traceback" not in finished.stderr, finished.stderr
    return finished.stdout


def steps(document: Path, folder: Path) -> Iterator[Step]:
    """Run every command of a document's console blocks in order."""
    for block in _BLOCK.findall(document.read_text(encoding="utf-8")):
        for command, expected in commands(block):
            yield Step(document, command, expected, run(command, folder))


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of one block, after `$ ` and continued after `> `, each with the output below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = next((i for i, line in enumerate(lines) if i and not line.startswith("> ")), len(lines))
        yield (
            "\n".join([lines[0], *(line[2:] for line in lines[1:length])]),
            "\n".join(lines[length:]).strip("\n"),
        )


def rewrite(document: Path, results: list[Step]) -> None:
    """Put the actual outputs into the document, where they differ."""
    found = iter(results)

    def block(match: re.Match[str]) -> str:
        parts = []
        for command, _ in commands(match.group(1)):
            first, *rest = command.split("\n")
            parts.append("\n".join([f"$ {first}", *(f"> {line}" for line in rest)]))
            step = next(found)
            output = (step.expected if step.is_fresh else step.found).strip("\n")
            parts += [output] if output else []
        return "\n".join(parts) + "\n"

    document.write_text(_BLOCK.sub(block, document.read_text(encoding="utf-8")), encoding="utf-8")


_SCRUBBED = (
    # Rounding errors in float32 depend on the processor.
    (r"^(\w+) +\d\.\d\de-0[67] +1\d\d dB ", r"\1 <error> "),
    # The exporter writes stack traces with this machine's paths into the graph, so its size differs by installation.
    (r"pytorch \d[\w.+]*", "pytorch <version>"),
    (r"[\d,.]+ [KMGT]?i?B on disk", "<size> on disk"),
    (r"(· opset [^\n]*· )[\d,.]+ [KMGT]?i?B", r"\1<size>"),
    (r"^note [\d,]+ bytes could be stripped:[\s\S]*?\[strippable-metadata\]$", "note [strippable-metadata]"),
    (r"^note [\d,]+ bytes could be stripped:.*$", "note <strippable-metadata>"),
    (r"^note [\d,.]+ [KMGT]?i?B of stack traces and notes can be stripped +", "note <size> can be stripped "),
    (r"same size, [\d,]+ bytes", "same size"),
    (r"^wasted [\d,.]+ [KMGT]?i?B \(<?[\d.]+ %", "wasted <size> (<share>"),
    (r"<?[\d.]+\s%\s(larger|smaller)\s\([\d,]+\s->\s[\d,]+\sbytes\)", r"\1"),
    (r"^(\[[a-z ]+\]) +[\d,]+ +<?[\d.]+ %$", r"\1"),  # --by bytes
    (r"^([a-z]+ +[\d,]+) +<?[\d.]+ %( +[\d,]+ +[\d,]+)$", r"\1\2"),
    (r"^total +[\d,]+( +[\d,]+ +[\d,]+)$", r"total\1"),
    (r"^((?:\S+\.onnx|total) +[\d,]+) +[\d.]+ [KMGT]?i?B( +[A-Z])", r"\1\2"),  # inspect DIR
    (r"^\[graph structure\].*$", "[graph structure]"),
    (r"^(total(?: +[\d,]+){3}) +[\d,]+$", r"\1"),
    (r"^total bytes .*$", "total bytes"),
    (r"^─+$", "---"),
    (r" +", " "),
)


_TIMES = (
    (r"^cpu on [\s\S]*?(?=\n\n)", "<machine>"),
    # A warning about noise depends on other load of the machine.
    (r"^WARN (?:the median|profiled runs)\s[^\n]*(?:\n +[^\n]+)*\n", ""),
    (r"^profiled runs, [\s\S]*?(?=\n\n)", "<profiled>"),
    (r"^memory at most: [\s\S]*?(?=\n\n|\Z)", "<memory>"),
    (r"[█▏▎▍▌▋▊▉]+", ""),
    (r"[<>]?-?[\d,.]+ %", "#"),
    (r"-?[\d,]+\.\d+", "#"),
    # The width of times determines which columns have room.
    (r" +± ms| +kernels", ""),
    (r" +", " "),
    (r"#(?: #)+", "#"),
)


def scrub_times(text: str) -> str:
    """Replace measured values."""
    for pattern, replacement in _TIMES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def scrub(text: str) -> str:
    """Replace texts that may differ between machines."""
    for pattern, replacement in _SCRUBBED:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
