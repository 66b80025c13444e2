"""`onnxledger recover`: the PyTorch state dict that a model holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import OutputFiles, ReadOptions, SourceOptions, bounding, sourcing
from analyzer.commands.pytorch import files_of, find_beside, read_names
from analyzer.commands.run import Run, answering, check_artifact, check_folders, is_same, list_inputs
from analyzer.errors import UsageError
from analyzer.records import replace

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.model import Key
    from analyzer.reconciliation import ContentMode
    from analyzer.recover import Recovery


@command(
    "recover",
    examples=(
        "onnxledger recover model.onnx -o model.safetensors",
        "onnxledger recover int8.onnx -o weights.safetensors -o lost.md",
        "onnxledger recover fp16.onnx -o weights.safetensors --lossless",
    ),
)
@click.argument("model", shell_complete=complete_files)
@click.option(
    "-o",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    required=True,
    metavar="PATH",
    help="Write the state dict to a .safetensors file; write the report to a file with another suffix. Repeatable.",
)
@click.option(
    "--against",
    metavar="SOURCE",
    help="Take names and shapes from SOURCE.  [manifest.json, else config.json, beside MODEL; else MODEL's own]",
)
@click.option("--lossless", is_flag=True, help="Write nothing if any tensor was rounded or quantized.")
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="Compare this much of the values, to match tensors to names.  [full if SOURCE has values]",
)
@sourcing
@bounding
@answering(writes=False)
def recover(
    model: str,
    outputs: tuple[Path, ...],
    against: str | None,
    lossless: bool,
    content: ContentMode | None,
    sourced: SourceOptions,
    bounded: ReadOptions,
    run: Run,
) -> None:
    """Write the PyTorch state dict that MODEL holds.

    Weights are unfolded, transposed back, split and dequantized. Every value comes
    from MODEL; SOURCE gives names, shapes, types and ties. The report lists
    tensors that MODEL does not hold; the exit code is then 1.
    """
    from analyzer.recover import recover_state
    from analyzer.recover.ownnames import read_own_names
    from analyzer.reports import RecoverReport
    from analyzer.verify.originals import reconcile_original

    check_artifact(bounded, [model])
    path, reports = _state_file(outputs)
    run = replace(run, written=reports)
    source = against if against is not None else find_beside(model)
    inputs = [*list_inputs(model), *files_of(source)]
    _check_state_file(path, inputs)
    run.guard(*inputs, path)
    original = read_names(source, sourced, run, is_requested=against is not None)
    ledger = run.audit(model, bounded)
    _check_state_file(path, ledger.model.paths)
    refused: Mapping[Key, str] = {}
    if original is None:
        original, refused = read_own_names(ledger)
    is_known = original.weights is not None or original.manifest.has_content
    if content == "sampled" and is_known:
        run.notify(
            "--content sampled: recover compares all values instead, because samples cannot prove a name"
        )
    if content != "none" and is_known:
        content = "full"
    recovery = recover_state(reconcile_original(ledger, original, content, run), refused)
    is_written = bool(recovery.tensors) and not (lossless and recovery.lossy)
    if is_written:
        _save(recovery, path, run)
    report = RecoverReport(recovery, str(path) if is_written else None, lossless)
    run.finish(report, failed=not is_written or not recovery.is_whole)


def _save(recovery: Recovery, path: Path, run: Run) -> None:
    from analyzer.recover import save_state

    with run.progress(f"writing {path.name}") as tick:
        save_state(recovery, path, tick)


def _state_file(outputs: Sequence[Path]) -> tuple[Path, OutputFiles]:
    """Return the one file for the state dict, and the files for the report.

    Raises:
        UsageError: there is no file for the state dict, or several.
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
    return states[0], OutputFiles(tuple(path for path in outputs if path not in states))


def _check_state_file(path: Path, inputs: Sequence[Path]) -> None:
    """Refuse, before any work, to overwrite another file by the state dict: a lost checkpoint cannot be restored.

    Raises:
        UsageError: it is an input, or a file that `recover` did not write, or its folder is missing.
    """
    from analyzer.checkpoints.statefile import PARTIAL, is_ours

    partial = path.with_name(path.name + PARTIAL)
    if any(is_same(written, other) for written in (path, partial) for other in inputs):
        raise UsageError(f"-o {path}: is an input of this command; name another file")
    if path.exists() and not is_ours(path):
        raise UsageError(
            f"-o {path}: exists, and recover did not write it; name another file, or move it away"
        )
    check_folders([path])
