"""Coverage-guided fuzzing of the reader and of both renderings: `make fuzz SECONDS=600`.

Inputs are changed field by field, so that most stay messages. libFuzzer writes inputs that `oracle.check_file` rejects
to `build/fuzz/`, as `crash-<hash>`; `python -m tools.fuzz FILE` runs one file again.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]

with atheris.instrument_imports(include=["analyzer"], enable_loader_override=False):
    from tools.fuzz import oracle

from tools.fuzz.mutate import DICTIONARY, mutate  # noqa: E402 - not to be instrumented
from tools.fuzz.seeds import write_seeds  # noqa: E402

LONGEST = 1 << 14
TIMEOUT = 10
"""Seconds after which an input counts as a hang."""
MEMORY = 1 << 10
"""MiB that the process may use."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="how long  [60]")
    parser.add_argument(
        "--corpus", type=Path, default=ROOT / "build" / "fuzz", help="folder of inputs that are kept"
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="keep a file of each kind of defect, and go on"
    )
    parser.add_argument("file", nargs="*", type=Path, help="run these files once, and nothing else")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    (folder / "w.bin").write_bytes(bytes(range(64)))
    (folder / "d").mkdir()
    path = folder / "model.onnx"
    counts: Counter[str] = Counter()

    def run(content: bytes) -> None:
        path.write_bytes(content)
        try:
            counts[oracle.check_file(path, content, full=bool(len(content) & 1))] += 1
        except Exception as error:
            if not options.keep_going:
                raise
            note(error, content)
        if not sum(counts.values()) % 10_000:
            print(dict(counts), file=sys.stderr, flush=True)

    def note(error: Exception, content: bytes) -> None:
        """Keep one file for each kind of defect."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__}-{Path(frame.filename).stem}-{frame.lineno}-{str(error).partition(':')[0][:40]}"
        name = re.sub(r"[^\w.-]+", "_", kind)
        counts[name] += 1
        if counts[name] == 1:
            (options.corpus / f"find-{name}").write_bytes(content)
            print(f"{name}: {error}"[:600], file=sys.stderr, flush=True)

    def change(content: bytes, most: int, seed: int) -> bytes:
        changed = mutate(content, most, seed) if seed % 8 else None
        return atheris.Mutate(content, most) if changed is None else changed

    if options.file:
        for file in options.file:
            run(file.read_bytes())
            print(f"{file}: {dict(counts)}")
        return
    inputs, finds = options.corpus / "corpus", options.corpus
    inputs.mkdir(parents=True, exist_ok=True)
    write_seeds(inputs, LONGEST)
    words = options.corpus / "words.dict"
    quoted = ("".join(f"\\x{byte:02x}" for byte in word) for word in DICTIONARY)
    words.write_text("".join(f'"{word}"\n' for word in quoted))
    arguments = [
        f"-max_total_time={options.seconds}",
        f"-max_len={LONGEST}",
        f"-timeout={TIMEOUT}",
        f"-rss_limit_mb={MEMORY}",
        f"-artifact_prefix={finds}/",
        f"-dict={words}",
        "-print_final_stats=1",
        str(inputs),
    ]
    atheris.Setup([sys.argv[0], *arguments], run, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
