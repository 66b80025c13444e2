"""`onnxledger recover`: the PyTorch state dict that a model holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands.options import (
    Bounded,
    Output,
    Sourced,
    Written,
    bounding,
    reporting,
    sourcing,
)
from analyzer.commands.pytorch import (
    files_of,
    find_beside,
    read_names,
    reconcile_with,
)
from analyzer.commands.reading import audit, check_artifact, list_inputs
from analyzer.commands.terminal import (
    EXIT_FINDING,
    check_outputs,
    check_state_file,
    emit,
    progress,
    say,
)
from analyzer.errors import UsageError

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.model import Key
    from analyzer.reconciliation import ContentMode
    from analyzer.recover import Recovery

__all__ = ["recover"]


@click.command()
@click.argument("model")
@click.option(
    "-o",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    required=True,
    metavar="PATH",
    help="The state dict, a .safetensors file; with another suffix the report. Repeatable.",
)
@click.option(
    "--against",
    metavar="SOURCE",
    help="Whose names it is given.  [manifest.json, else config.json, beside MODEL; else MODEL's own]",
)
@click.option("--lossless", is_flag=True, help="Write nothing if any tensor was rounded or quantized.")
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="How far values are compared, to know which is which.  [full if known]",
)
@sourcing
@bounding
@reporting
def recover(
    model: str,
    outputs: tuple[Path, ...],
    against: str | None,
    lossless: bool,
    content: ContentMode | None,
    sourced: Sourced,
    bounded: Bounded,
    output: Output,
) -> None:
    """Write the PyTorch state dict that MODEL holds.

    Unfolded, transposed back, split, dequantized. Every value comes from MODEL,
    only names, shapes, types and ties from SOURCE. What MODEL does not hold is
    listed, and the exit code is 1.
    """
    from analyzer.recover import recover_state
    from analyzer.recover.ownnames import read_own_names
    from analyzer.report import RecoverReport

    check_artifact(bounded, [model])
    path, reports = _state_file(outputs)
    source = against if against is not None else find_beside(model)
    read = [*list_inputs(model), *files_of(source)]
    check_state_file(path, read)
    check_outputs(reports, [*read, path])
    original = read_names(source, sourced, output, is_asked=against is not None)
    ledger = audit(model, bounded, quiet=output.quiet)
    check_state_file(path, ledger.model.paths)
    check_outputs(reports, ledger.model.paths)
    refused: Mapping[Key, str] = {}
    if original is None:
        original, refused = read_own_names(ledger)
    is_known = original.weights is not None or original.manifest.has_content
    if content == "sampled" and is_known and not output.quiet:
        say(
            "--content sampled: recover compares whole contents, so that nothing is written by a few elements"
        )
    if content != "none" and is_known:
        content = "full"
    recovery = recover_state(reconcile_with(ledger, original, content, output), refused)
    is_written = bool(recovery.tensors) and not (lossless and recovery.lossy)
    if is_written:
        _save(recovery, path, output)
    emit(RecoverReport(recovery, str(path) if is_written else None, lossless), output, reports)
    if not is_written or not recovery.is_whole:
        raise click.exceptions.Exit(EXIT_FINDING)


def _save(recovery: Recovery, path: Path, output: Output) -> None:
    from analyzer.recover import save_state

    with progress(f"writing {path.name}", output.quiet) as tick:
        save_state(recovery, path, tick)


def _state_file(outputs: Sequence[Path]) -> tuple[Path, Written]:
    """The one file for the state dict, and those for the report.

    Raises:
        UsageError: there are none or several for the state dict.
    """
    states = [path for path in outputs if path.suffix == ".safetensors"]
    others = [path for path in outputs if path.suffix in (".pt", ".pth", ".bin", ".ckpt")]
    if not states and others:
        raise UsageError(
            f"-o {others[0]}: a state dict is written as safetensors, which runs no code when it is read; "
            f"name {others[0].with_suffix('.safetensors')}, and load it by safetensors.torch.load_file"
        )
    if len(states) != 1:
        raise UsageError(f"-o: name one .safetensors file for the state dict, not {len(states)}")
    return states[0], Written(tuple(path for path in outputs if path not in states))
