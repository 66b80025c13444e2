"""The document of a saved report -> where it contradicts itself: parts were cut off, or numbers edited."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.documents.inspect import InspectDocument, Totals
from analyzer.dtypes import DType
from analyzer.ledger import Role
from analyzer.wording import shown

__all__ = ["find_contradiction"]

_MOST_BITS = 512
"""Of a number: no file has more of anything, and its ratios are still numbers."""


def find_contradiction(told: InspectDocument) -> str | None:
    """What is wrong with a report of `inspect` on one model; None where its totals are the sums of their parts."""
    return next(_find_wrong(told), None)


def _find_wrong(told: InspectDocument) -> Iterator[str]:
    """What no report of ours has: values that nothing has first, then totals that are not the sums of their parts."""
    yield from _find_misfits(told)
    model, totals, tensors = told.model, told.totals, told.tensors
    yield from _hold("stored_tensors", totals, len(tensors))
    yield from _hold("parameters", totals, sum(tensor.parameters for tensor in tensors))
    yield from _hold("stored_elements", totals, sum(tensor.stored_elements for tensor in tensors))
    yield from _hold("stored_bytes", totals, sum(tensor.bytes for tensor in tensors))
    yield from _hold("file_bytes", totals, sum(file.bytes for file in model.files))
    yield from _hold("file_bytes", totals, sum(account.bytes for account in told.accounts))
    if model.functions > totals.file_bytes:
        yield f"model, functions: {shown(model.functions)}, in fewer bytes"


def _hold(name: str, totals: Totals, found: int) -> Iterator[str]:
    if getattr(totals, name) != found:
        yield f"totals, {name}: {shown(getattr(totals, name))}, and its parts are {shown(found)}"


def _find_misfits(told: InspectDocument) -> Iterator[str]:
    model = told.model
    numbers = [model.ir_version, *model.opsets.values(), model.functions, model.nodes]
    numbers += [*(file.bytes for file in model.files), *(account.bytes for account in told.accounts)]
    for tensor in told.tensors:
        numbers += [*tensor.shape, tensor.uses, tensor.applications]
        numbers += [tensor.parameters, tensor.stored_elements, tensor.bytes]
        if tensor.dtype not in DType.__members__:
            yield f"{shown(tensor.dtype)}: no element type"
        if told.blocks is not None:
            if tensor.block is None:
                yield f"{shown(tensor.name)}: in no block"
            if tensor.layer_role is None and tensor.role is Role.PARAMETER:
                yield f"{shown(tensor.name)}: does nothing in its block"
    yield from (f"{shown(number)}: too large" for number in numbers if number.bit_length() > _MOST_BITS)
