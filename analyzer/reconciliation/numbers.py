"""Rules: parameters of one element, which a file stores without a name, or as a number that scales a product."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from analyzer.account.ledger import Entry, Role
from analyzer.account.scopes import module_of
from analyzer.manifest import Parameter
from analyzer.model.dtypes import DType
from analyzer.model.operators import DECODES
from analyzer.reconciliation.books import Books, is_near, piece_of
from analyzer.reconciliation.closeness import is_odd
from analyzer.reconciliation.contents import Fit
from analyzer.reconciliation.lines import Line
from analyzer.reconciliation.matching import is_read_in
from analyzer.reconciliation.pointwise import FoundFunction, assign_function, find_function
from analyzer.reconciliation.program import numbers_of_products


def match_numbers(books: Books) -> None:
    """Match each nameless number with the one free parameter of one element that equals it.

    A round number is no evidence (an exporter makes many), nor is one that occurs twice in the file or in PyTorch.
    """
    if books.contents.mode == "none":
        return
    numbers: dict[bytes, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        samples = books.contents.originals.samples(parameter) if parameter.numel == 1 else None
        if samples is not None and is_odd(samples):
            numbers[samples.tobytes()].append(parameter)
    stored: dict[bytes, list[Entry]] = defaultdict(list)
    for entry in books.free_entries() if numbers else ():
        is_number = books.contents.numel(entry) == 1 and entry.tensor.dtype.is_floating and not entry.sources
        look = books.contents.at(entry, np.zeros(1, dtype=np.int64)) if is_number else None
        if look is not None:
            stored[look[0].tobytes()].append(entry)
    for key, parameters in numbers.items():
        if len(parameters) == 1 and len(stored[key]) == 1:
            fit = books.contents.fit(stored[key][0], parameters[0])
            if fit is not None:
                pieces = (piece_of(stored[key][0], fit),)
                books.assign(
                    parameters[0],
                    stored[key][0],
                    fit.chain or (Line.RENAMED,),
                    fit.evidence,
                    0.0,
                    pieces=pieces,
                )


def match_read_numbers(books: Books) -> None:
    """Match each nameless number with the one free parameter of one element that its module reads, up to rounding.

    The reader must be of the parameter's module. If no node names its module, a PRelu is evidence too, because it reads
    no other number. Each must be the other's only candidate. Only the slope of a module's PRelu may be a round number.
    """
    if books.contents.mode == "none":
        return
    parameters = [p for p in books.free_parameters() if p.numel == 1 and books.contents.compares(p)]
    found: list[tuple[Entry, Parameter, Fit]] = []
    for entry in list(books.free_entries()) if parameters else ():
        is_real = entry.tensor.dtype.is_floating or books.contents.encoding(entry) is not None
        if books.contents.numel(entry) != 1 or not is_real or entry.sources or not entry.uses:
            continue
        if entry.role is Role.QUANTIZATION:
            continue
        named = books.tensor(entry.tensor.name.removesuffix(_QUANTIZED))
        modules = books.reader_modules(entry)
        readers = books.ledger.wiring.readers(entry.tensor, past=DECODES)
        is_slope = bool(readers) and all(each.node.op_type == "PRelu" and each.slot == 1 for each in readers)
        for parameter in parameters:
            samples = books.contents.originals.samples(parameter)
            is_evidence = (is_slope and modules) or (samples is not None and is_odd(samples))
            is_read = is_read_in(parameter, modules) if modules else is_slope
            if not is_evidence or not is_read or (named is not None and named.name != parameter.name):
                continue
            fit = books.contents.fit(entry, parameter)
            if fit is not None:
                found.append((entry, parameter, fit))
    of_entries = Counter(entry.tensor.key for entry, _, _ in found)
    of_parameters = Counter(parameter.name for _, parameter, _ in found)
    for entry, parameter, fit in found:
        if of_entries[entry.tensor.key] == 1 and of_parameters[parameter.name] == 1:
            chain, pieces = fit.chain or (Line.RENAMED,), (piece_of(entry, fit),)
            books.assign(parameter, entry, chain, fit.evidence, fit.error, pieces=pieces)


_QUANTIZED = "_quantized"
"""Suffix of the names of codes that onnxruntime's quantizers make."""


def match_computed_numbers(books: Books) -> None:
    """Explain each free parameter of one element of which a nameless number, or a fused product, has the exponential.

    CLIP multiplies its scores by such a temperature (Radford et al. 2021, arXiv:2103.00020, section 2.3). PyTorch's
    program, if known, tells more (`analyzer.reconciliation.program`). Each must be the other's only candidate, and not
    of another module. A stored number of fewer digits than single precision must be read by the parameter's own module.
    """
    if books.contents.mode == "none" or books.manifest.program is not None:
        return
    numbers = {
        parameter.name: (parameter, samples)
        for parameter in books.free_parameters()
        if parameter.numel == 1
        and (samples := books.contents.originals.samples(parameter)) is not None
        and is_odd(samples)
    }
    stored: list[tuple[Parameter, Entry, FoundFunction]] = []
    for entry in list(books.free_entries()) if numbers else ():
        if books.contents.numel(entry) != 1 or entry.role is Role.QUANTIZATION or not entry.uses:
            continue
        modules = books.reader_modules(entry)
        for parameter, _ in numbers.values():
            found = find_function(books, entry, parameter)
            is_exact = entry.tensor.dtype is DType.FLOAT
            is_placed = not modules or any(is_near(module_of(parameter.name), each) for each in modules)
            if found is not None and (is_placed if is_exact else is_read_in(parameter, modules)):
                stored.append((parameter, entry, found))
    scaled: list[Parameter] = []
    for factor, module in numbers_of_products(books) if numbers else ():
        fits = [
            parameter
            for parameter, samples in numbers.values()
            if abs(factor / np.exp(np.float64(samples[0])) - 1) <= _ROUNDED
            and (module is None or is_near(module, module_of(parameter.name)))
        ]
        scaled += fits if len(fits) == 1 else ()
    claims = Counter(parameter.name for parameter in [*(parameter for parameter, _, _ in stored), *scaled])
    claimed = Counter(entry.tensor.key for _, entry, _ in stored)
    for parameter, entry, found in stored:
        if claims[parameter.name] == 1 == claimed[entry.tensor.key]:
            assign_function(books, entry, parameter, found)
    for parameter in scaled:
        if claims[parameter.name] == 1:
            books.assign_parts(parameter, [], (Line.EVALUATED,), "content:exp(w)+attribute", 0.0)


_ROUNDED = 1e-6
"""Relative error of an exponential in single precision."""
