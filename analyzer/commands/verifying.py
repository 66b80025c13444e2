"""A model file and a SOURCE -> whether the file computes what the PyTorch module of that SOURCE does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.commands.options import Output, Sourced
from analyzer.commands.pytorch import hush, import_exporter, reconcile_with
from analyzer.commands.terminal import say
from analyzer.errors import SourceError, UsageError

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.ledger import Ledger
    from analyzer.process.child import Limits
    from analyzer.verify.record import VerifyReport

__all__ = ["Weights", "verify_source"]

_PURPOSE = "running PyTorch's side"


@dataclass(frozen=True, slots=True)
class Weights:
    """Which weights a SOURCE without any is given."""

    random: bool
    seed: int


def verify_source(
    ledger: Ledger,
    source: str,
    sourced: Sourced,
    weights: Weights,
    seeds: Sequence[int],
    limits: Limits,
    output: Output,
    stamp: str | None,
) -> VerifyReport:
    """Run PyTorch's module beside the file.

    Where the file holds other numbers than the module, as quantized ones, or SOURCE has none, the module computes with
    what is recovered from the file.

    Raises:
        SourceError: SOURCE names nothing that can be built.
        UsageError: the weights cannot be recovered, or which input is which cannot be told.
        ExportError: forward fails.
        TimingError: the file does not run, or not within the limits.
        MissingExtraError: torch is not installed.
    """
    exporter = import_exporter(_PURPOSE)
    from analyzer.checkpoints.weights import Original
    from analyzer.verify.against import verify_module
    from analyzer.verify.weights import check_whole, give_back, known_of
    from exporter.running import run_beside

    told = hush if output.quiet else say
    resolved, is_made_up = _resolve(exporter, source, sourced, weights, told)
    graph = ledger.model.graphs[0]
    side = run_beside(resolved, [(value.name, value.dims or ()) for value in graph.signature])
    manifest = exporter.take_census(resolved.model, {}, evidence=False)
    values = None if is_made_up else exporter.weights_of(resolved.model, without=resolved.missing)
    result = reconcile_with(ledger, Original(manifest, values), None, output)
    notes = [] if result.balanced else [f"the weights of {source}: the file does not balance against them"]
    if is_made_up:
        check_whole(result, source)
    if give_back(result, side, is_all=is_made_up):
        notes.append(
            f"what weights cost: PyTorch computes with those of the file, not with those of {source}"
        )
    if not output.quiet:
        say("running both sides")
    against = f"{resolved.class_name}, {source}"
    return verify_module(ledger, side, against, seeds, limits, notes, known_of(result), stamp)


def _resolve(exporter: Any, source: str, sourced: Sourced, weights: Weights, told: Any) -> tuple[Any, bool]:
    """The module, and whether its weights are made up."""
    from analyzer.manifest import MANIFEST_FILE, is_manifest, load_manifest

    path = Path(source)
    found = path / MANIFEST_FILE if (path / MANIFEST_FILE).is_file() else path
    options: dict[str, Any] = {
        "model_class": sourced.model_class,
        "random_weights": weights.random,
        "seed": weights.seed,
        "trust_remote_code": sourced.trust_remote_code,
    }
    if found.is_file() and is_manifest(found):
        made = load_manifest(found).source
        if "source" not in made:
            raise UsageError(
                f"{source}: does not say what it was exported from; name that with --against SOURCE"
            )
        source = made["source"]
        is_class = made.get("kind") != "factory"
        options |= {
            "model_class": sourced.model_class or (made.get("class") if is_class else None),
            "random_weights": made.get("weights") == "random",
            "fresh_init": made.get("weights") == "fresh",
            "seed": int(made.get("seed", "0")),
            "dtype": made.get("dtype", "fp32"),
        }
    try:
        return exporter.resolve_source(source, exporter.SourceOptions(**options), told), False
    except SourceError as error:
        if "without weights" not in str(error):
            raise
        options["random_weights"] = True
        return exporter.resolve_source(source, exporter.SourceOptions(**options), told), True
