"""The document of a saved report -> where it contradicts itself: parts were cut off, or numbers edited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from analyzer.wording import shown

__all__ = ["find_contradiction"]

_MOST_BITS = 512
"""Of a number: no file has more of anything, and its ratios are still numbers."""

_SUMS = {"parameters": "parameters", "stored_elements": "stored_elements", "stored_bytes": "bytes"}
"""Totals, and what of the tensors they are the sum of."""

_TEXTS = ("name", "carrier", "dtype", "role", "decided_by", "read_by")


def find_contradiction(document: Mapping[str, Any]) -> str | None:
    """What is wrong with a report of `inspect` on one model; None where its totals are the sums of their parts.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is no such report.
    """
    return next(_find_wrong(document), None)


def _find_wrong(document: Mapping[str, Any]) -> Iterator[str]:
    """What no report of ours has: values of another kind first, then totals that are not the sums of their parts."""
    yield from _find_misfits(document)
    model, totals, tensors = document["model"], document["totals"], document["tensors"]
    yield from _hold("stored_tensors", totals, len(tensors))
    for total, part in _SUMS.items():
        yield from _hold(total, totals, sum(tensor[part] for tensor in tensors))
    for listed in (model["files"], document["accounts"]):
        yield from _hold("file_bytes", totals, sum(item["bytes"] for item in listed))
    if model["functions"] > totals["file_bytes"]:
        yield f"model, functions: {shown(model['functions'])}, in fewer bytes"


def _hold(name: str, totals: Mapping[str, Any], found: int) -> Iterator[str]:
    if type(totals[name]) is not int or totals[name] != found:
        yield f"totals, {name}: {shown(totals[name])}, and its parts are {shown(found)}"


def _find_misfits(document: Mapping[str, Any]) -> Iterator[str]:
    model, tensors = document["model"], document["tensors"]
    yield from _find_other(list, [tensors, document["findings"], model["files"], document["accounts"]])
    numbers = [model["ir_version"], *model["opsets"].values(), model["functions"], model.get("nodes", 0)]
    numbers += [item["bytes"] for item in (*model["files"], *document["accounts"])]
    texts = [account["account"] for account in document["accounts"]]
    texts += [file["path"] for file in model["files"]]
    for tensor in tensors:
        yield from _find_other(list, [tensor["shape"], tensor["sources"], tensor.get("shared_with", [])])
        numbers += [*tensor["shape"], tensor["uses"], tensor.get("applications", 1)]
        numbers += [tensor[part] for part in _SUMS.values()]
        texts += [tensor[key] for key in _TEXTS]
        texts += [tensor["copy_of"]] if tensor["copy_of"] is not None else []
    yield from _find_other(int, numbers)
    yield from _find_other(str, texts)


_KINDS = {int: "a whole number", list: "an array", str: "a text"}


def _find_other(kind: type, values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if type(value) is not kind:
            yield f"{shown(value)}: not {_KINDS[kind]}"
        elif type(value) is int and value.bit_length() > _MOST_BITS:
            yield f"{shown(value)}: too large"
