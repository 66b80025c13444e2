"""Arguments of `--input` -> one file of arrays, an array for each input that was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from analyzer.account.ledger import Ledger
from analyzer.errors import UsageError
from analyzer.model.content import Array
from analyzer.records import Frozen
from analyzer.text import printable
from analyzer.timing.inputs.arrays import load_array, save_arrays
from analyzer.timing.inputs.feeds import plan_feeds, read_headers
from analyzer.timing.request import Fill


class GivenInputs(Frozen):
    """Inputs that are read from files."""

    npz: Path
    """File with an array for each input."""
    files: Mapping[str, str]
    """File that each input was read from, as the user named it."""

    def arrays(self, ledger: Ledger) -> dict[str, Array]:
        """Return all inputs of a model, by name.

        Raises:
            UsageError: an input is missing, or an array belongs to no input of the model.
        """
        feeds = plan_feeds(ledger, npz=self.npz)[0].feeds
        missing = [printable(feed.name) for feed in feeds if feed.fill is not Fill.FILE]
        if missing:
            raise UsageError(f"--input: lacks {', '.join(missing)}; beside PyTorch give all inputs, or none")
        try:
            return {feed.name: load_array(feed, str(self.npz)) for feed in feeds}
        except (OSError, ValueError) as error:
            raise UsageError(f"--input {self.npz}: cannot be read: {error}") from error


def gather_inputs(texts: Sequence[str], folder: Path) -> GivenInputs | None:
    """Gather the named arrays in one file; None where none was named.

    Args:
        texts: `FILE.npz`, or `NAME=FILE.npy` of one input.
        folder: where that file may be written.

    Raises:
        UsageError: a file cannot be read, or an input is given twice.
    """
    if not texts:
        return None
    files: dict[str, str] = {}
    arrays: dict[str, Array] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if equals and not Path(text).exists():
            found, text = {name: _read(rest)}, rest
        else:
            read_headers(Path(text))
            with np.load(text, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files} if len(texts) > 1 else {}
            files.update((each.name, text) for each in read_headers(Path(text)))
        for each in found:
            if each in arrays:
                raise UsageError(f"--input {text}: gives {printable(each)} again; give each input once")
            files[each] = text
        arrays.update(found)
    if len(texts) == 1 and not arrays:
        return GivenInputs(Path(texts[0]), files)
    target = folder / "inputs.npz"
    save_arrays(target, arrays)
    return GivenInputs(target, files)


def _read(name: str) -> Array:
    path = Path(name)
    try:
        if not path.is_file():
            raise UsageError(f"--input {name}: is no file; write NAME=FILE.npy, or FILE.npz")
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, MemoryError, OverflowError) as error:
        raise UsageError(
            f"--input {name}: is no array that numpy reads ({printable(str(error))[:200]}); write it with numpy.save"
        ) from error
    if not isinstance(array, np.ndarray):
        raise UsageError(f"--input {name}: holds several arrays; give it without a name before it")
    return array
