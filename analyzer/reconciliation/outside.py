"""Rule: parameters of a head that this file's task does not have, and those that only training reads.

Asked where no traced program says what is read. Nothing of the head may be in the file: no tensor of any of its
parameters, and no node whose scope is inside it. What is absent and is neither stays `missing`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from analyzer.manifest import OF_CLASS, Parameter
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import Line

__all__ = ["HEADS", "TRAINING_ONLY", "settle_outside"]

HEADS = (
    "classifier",
    "cls",
    "cls.predictions",
    "cls.seq_relationship",
    "decoder_pred",
    "discriminator_predictions",
    "generator_lm_head",
    "generator_predictions",
    "lm_head",
    "pooler",
    "pre_classifier",
    "predictions",
    "project_hid",
    "project_q",
    "qa_outputs",
    "quantizer",
    "score",
    "sop_classifier",
    "vocab_layer_norm",
    "vocab_projector",
    "vocab_transform",
)
"""Modules that transformers puts on a bare model for one task (`modeling_*.py`), at the top or in the base model."""

TRAINING_ONLY = ("mask_token", "masked_spec_embed")
"""Last parts of names that forward reads in training alone (`modeling_vit.py`, `modeling_wav2vec2.py`)."""


def settle_outside(books: Books) -> None:
    """Settle whole heads that are absent as `outside`, and what only training reads as `unused`.

    Not beside the trace of an export, which read them or did not; that of a class says nothing of the file's.
    """
    if books.manifest.trace not in (None, OF_CLASS):
        return
    heads: dict[str, list[Parameter]] = defaultdict(list)
    for parameter in books.manifest.parameters:
        head = _head(parameter.names)
        if head is not None:
            heads[head].append(parameter)
    scopes = {books.aligned.module(scope) for scope in books.ledger.traced_scopes.values()}
    for head, parameters in sorted(heads.items()):
        is_absent = all(parameter.name not in books.parameters for parameter in parameters)
        if is_absent and not any(f"{scope}.".startswith(f"{head}.") for scope in scopes):
            for parameter in parameters:
                books.lose(parameter, Line.OUTSIDE, f"name:head {head}")
    for parameter in list(books.free_parameters()):
        if parameter.name.rpartition(".")[2] in TRAINING_ONLY:
            books.lose(parameter, Line.UNUSED, "name:training-only")


def _head(names: Iterable[str]) -> str | None:
    """The head that all names of a parameter are in; a tied one that is also elsewhere is of none."""
    found = {_head_of(name) for name in names}
    return found.pop() if len(found) == 1 else None


def _head_of(name: str) -> str | None:
    """The first one or two parts of a name, or those after the base model's prefix, that are a head."""
    parts = name.split(".")
    for start in (0, 1):
        for length in (2, 1):
            if len(parts) > start + length and ".".join(parts[start : start + length]) in HEADS:
                return ".".join(parts[: start + length])
    return None
