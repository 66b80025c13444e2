"""Read changed models beside protobuf, without coverage and in many processes: `make differential CASES=1000000`.

A case that the two readers read in different ways, or on which ours fails, is kept in `build/fuzz/` as `find-<hash>`;
`python -m tools.fuzz.differential FILE` reads one file again. `make fuzz` looks for crashes in the reports too, some 40
inputs a second; this compares the readers alone, a few hundred a second.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from analyzer.errors import OnnxLedgerError
from analyzer.read import read_model
from tools.fuzz.mutate import mutate
from tools.fuzz.reading import check_reading, check_refusal, parse
from tools.fuzz.seeds import write_seeds

ROOT = Path(__file__).resolve().parents[2]

LONGEST = 1 << 12
"""Most bytes of a case: most defects of a reader need few."""
BATCH = 5_000
"""Cases of one task."""
POOL = 2_000
"""Most changed models that are changed again."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000, help="how many  [100000]")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time  [2]")
    parser.add_argument("--seed", type=int, default=0, help="of the changes  [0]")
    parser.add_argument(
        "--finds", type=Path, default=ROOT / "build" / "fuzz", help="folder of the cases that are kept"
    )
    parser.add_argument("file", nargs="*", type=Path, help="read these files once, and nothing else")
    options = parser.parse_args()
    if options.file:
        for file in options.file:
            print(f"{file}: {compare(file, file.read_bytes())}")
        return 0
    options.finds.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    sizes = [min(BATCH, options.cases - start) for start in range(0, options.cases, BATCH)]
    with (
        ProcessPoolExecutor(options.processes) as pool,
        tempfile.TemporaryDirectory(prefix="seeds-") as folder,
    ):
        seeds = Path(folder)
        write_seeds(seeds, LONGEST)
        models = [path.read_bytes() for path in sorted(seeds.iterdir())]
        tasks = [
            pool.submit(compare_many, models, size, options.finds, seed=options.seed * 1_000_003 + number)
            for number, size in enumerate(sizes)
        ]
        for task in as_completed(tasks):
            counts += task.result()
            print(f"\r{counts.total():,} cases", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for outcome, count in counts.most_common():
        print(f"{count:>11,}  {outcome}")
    return int(any(outcome.startswith("DEFECT") for outcome in counts))


def compare(path: Path, content: bytes) -> str:
    """Read the file at `path`, which holds `content`, with both readers, and return the outcome.

    Raises:
        BrokenPromiseError: the readers disagree; any exception that is not ours is a defect, too.
    """
    proto = parse(content)
    try:
        model = read_model(path)
    except OnnxLedgerError as error:
        check_refusal(error, path, proto)
        return "refused by both" if proto is None else "refused by a limit of ours, or without a graph"
    if proto is None:
        return "read, but protobuf refuses it"
    check_reading(model, proto)
    return "read alike"


def compare_many(models: Iterable[bytes], cases: int, finds: Path, *, seed: int = 0) -> Counter[str]:
    """Change models, and count the outcomes; a case with a defect is written to the folder `finds`."""
    pool = [*models]
    originals = len(pool)
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    warnings.simplefilter("ignore")  # of onnx, about what was changed
    with tempfile.TemporaryDirectory(prefix="differential-") as folder:
        Path(folder, "w.bin").write_bytes(bytes(range(64)))
        Path(folder, "d").mkdir()
        path = Path(folder, "model.onnx")
        while counts.total() < cases:
            content = mutate(rng.choice(pool), LONGEST, rng.getrandbits(63))
            if content is None:
                continue  # a file of the hostile corpus that is no message
            path.write_bytes(content)
            try:
                outcome = compare(path, content)
            except Exception as error:  # noqa: BLE001 - any exception is a defect, and the others must still be found
                name = hashlib.sha1(content, usedforsecurity=False).hexdigest()[:12]
                (finds / f"find-{name}").write_bytes(content)
                outcome = f"DEFECT {type(error).__name__}: {str(error).partition(':')[0][:60]}"
            counts[outcome] += 1
            if outcome == "read alike":
                if len(pool) < originals + POOL:
                    pool.append(content)
                else:
                    pool[rng.randrange(originals, len(pool))] = content
    return counts


if __name__ == "__main__":
    raise SystemExit(main())
