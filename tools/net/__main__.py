"""`python -m tools.net`: list the reports that a change of the code has changed, and print them.

python -m tools.net                 list digests that differ from tests/golden/net.json; exit 1 if there are any
python -m tools.net --write         write the digests
python -m tools.net --show NAME     print that case; with a part of a name, print all matching cases
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from tools.net.digests import PATH, compare, digest_all, load, write


def main() -> int:
    """Return the exit code: 1 if a digest differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.net", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {PATH.name}")
    parser.add_argument("--show", metavar="NAME", help="print the cases whose names hold this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        found = digest_all(Path(), show=options.show)
    if options.show:
        return 0
    if options.write:
        write(found)
        sys.stdout.write(f"{len(found):,} digests written\n")
        return 0
    differences = compare(load(), found)
    sys.stdout.write("\n".join(differences or [f"all {len(found):,} are as they were"]) + "\n")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
