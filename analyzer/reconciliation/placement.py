"""Rule: one parameter's values in another parameter's place.

A match of names and values proves the content of a tensor, not that the file reads it where PyTorch does. Three kinds
of evidence tell: the module of the reading node, and the parameter that this module has for that input; the operators
around a weight in one layer, if they surround another weight in other layers; and the order in which layers compute.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from analyzer.account.ledger import Entry, natural_order
from analyzer.manifest import Buffer, Parameter, split_name
from analyzer.model import GraphPath, Key, Node, Place, StoredTensor
from analyzer.model.content import Array
from analyzer.model.operators import DECODES, MOVES, Kind, Slot, operator_of
from analyzer.model.wiring import GraphInput, Reader, is_passed
from analyzer.reconciliation.books import Books, is_inside
from analyzer.reconciliation.closeness import Reals
from analyzer.reconciliation.lines import MEANINGS, EntryLine, Line
from analyzer.records import Frozen, replace

_NUMBER = re.compile(r"\d+")

_DIGITS = 9
"""Digits from which a number in a name is not taken for a layer's."""

_DEPTH = 5
"""Number of steps after a weight's node that make up its surroundings."""

_MOST_AROUND = 64
"""Most readers or producers of one step that are compared."""


_AS_ANOTHER = "structure:read-as-another"
"""Rule for a tensor whose place belongs to another parameter in other layers."""


class _Read(Frozen):
    """A parameter that one tensor holds whole, and the one node that computes with it."""

    parameter: Parameter
    entry: Entry
    reader: Reader


def settle_misplaced(books: Books) -> None:
    """Settle as `misplaced` the parameters that the file holds, but reads where another parameter belongs."""
    if books.contents.mode == "none":
        return
    parameter_reads = list(_read_alone(books))
    value_reads = list(_read_values(books))
    reads = parameter_reads + value_reads
    depths = _depths(books)
    readers = {(each.reader.node.place, each.reader.slot): each.reader for each in reads}
    surroundings = {key: _surroundings(books, reader) for key, reader in readers.items()}
    around = {each.parameter.name: surroundings[each.reader.node.place, each.reader.slot] for each in reads}
    books.placed = frozenset(_known_places(books, parameter_reads, depths, around))
    wrong: dict[str, str] = {}
    for each in parameter_reads:
        expected = _expected(books, each)
        if expected is not None:
            wrong[each.parameter.name] = f"provenance:read-as {expected}"
    several = list(_read_by_several(books))
    for each in several:
        expected = _expected(books, each)
        if expected is not None:
            wrong.setdefault(each.parameter.name, f"provenance:read-as {expected}")
    for name, reason in _find_unread_biases(books):
        wrong.setdefault(name, reason)
    for name in _out_of_pattern(books, reads, depths, around):
        wrong.setdefault(name, _AS_ANOTHER)
    for name in _out_of_order(books, reads, depths):
        wrong.setdefault(name, "structure:out-of-order")
    for key in itertools.chain(_find_exchanged_rotations(books), _find_exchanged_statistics(books)):
        line = books.entries[key]
        if line.learned and line.parameter is not None:
            wrong.setdefault(line.parameter, _AS_ANOTHER)
        else:
            decided_by = f"{line.decided_by}+{_AS_ANOTHER}"
            books.entries[key] = replace(line, line=Line.MISPLACED, decided_by=decided_by)
    for each in value_reads:
        rule = wrong.get(each.parameter.name)
        if rule is not None:
            line = books.entries[each.entry.tensor.key]
            books.entries[line.key] = replace(line, line=Line.MISPLACED, decided_by=rule)
    for name in dict.fromkeys(each.parameter.name for each in (*parameter_reads, *several)):
        if name in wrong:
            rule, settled = wrong[name], books.parameters[name]
            chain = (*settled.chain, Line.MISPLACED)
            books.parameters[settled.name] = replace(
                settled, line=Line.MISPLACED, chain=chain, decided_by=rule
            )
            for key in settled.entries:
                if key in books.entries:
                    books.entries[key] = replace(books.entries[key], line=Line.MISPLACED)


def settle_misplaced_by_program(books: Books, names: Iterable[str], tables: Iterable[Key] = ()) -> None:
    """Settle as `misplaced` the parameters, with their tensors, and the tables that PyTorch's program shows to be so.

    A table holds no parameter: it was computed from a buffer.
    """
    for key in tables:
        line = books.entries[key]
        rule = f"{line.decided_by}+program:read-as-another"
        books.entries[key] = replace(line, line=Line.MISPLACED, decided_by=rule)
    for name in names:
        settled = books.parameters[name]
        rule = f"{settled.decided_by}+program:read-as-another"
        chain = (*settled.chain, Line.MISPLACED)
        books.parameters[name] = replace(settled, line=Line.MISPLACED, chain=chain, decided_by=rule)
        for key in settled.entries:
            if key in books.entries:
                books.entries[key] = replace(books.entries[key], line=Line.MISPLACED)


def _read_alone(books: Books) -> Iterator[_Read]:
    """Yield the parameters that fill one tensor alone and have one reader, after nodes that move or decode it."""
    yield from (reads[0] for reads in _reads_of(books) if len(reads) == 1)


def _read_by_several(books: Books) -> Iterator[_Read]:
    """Yield the parameters with several readers, once for each: one of these may belong to another module."""
    for reads in _reads_of(books):
        yield from reads if len(reads) > 1 else ()


def _reads_of(books: Books) -> Iterator[list[_Read]]:
    """Yield the readers of each parameter that fills one tensor alone, after nodes that move or decode it."""
    parameter_counts: dict[object, int] = defaultdict(int)
    for line in books.parameters.values():
        for key in set(line.entries):
            parameter_counts[key] += 1
    for parameter in books.manifest.parameters:
        line = books.parameters[parameter.name]
        if len(line.entries) != 1 or MEANINGS[line.line].unbalanced or parameter_counts[line.entries[0]] != 1:
            continue
        if len(line.pieces) > 1 or any(piece.taken or piece.put for piece in line.pieces):
            continue
        entry = books.entry(line.entries[0])
        readers = books.ledger.wiring.readers(entry.tensor, past=MOVES | DECODES)
        yield [_Read(parameter, entry, reader) for reader in readers]


def _read_values(books: Books) -> Iterator[_Read]:
    """Yield the program's values that hold no parameter, each as if it were a parameter of the layer of its origin."""
    for key, value in books.evaluated.items():
        if not value.parameters or books.entries[key].parameter is not None:
            continue
        formula = _NUMBER.sub("", value.expression)
        stand_in = Parameter(
            f"{value.parameters[0]}~{formula}",
            value.shape,
            value.dtype,
            trainable=False,
            content=value.content,
        )
        entry = books.entry(key)
        readers = books.ledger.wiring.readers(entry.tensor, past=MOVES | DECODES)
        if len(readers) == 1:
            yield _Read(stand_in, entry, readers[0])


def _known_places(
    books: Books, parameter_reads: Sequence[_Read], depths: Mapping[Place, int], around: Mapping[str, _Around]
) -> set[str]:
    """Return the parameters for which a wrong place would have been detected.

    The module of the reading node has a parameter for that input; or no other parameter has this shape; or no other
    parameter of this shape in the layer has the same surroundings, and the layers compute in their order.
    """
    shapes = Counter(parameter.shape for parameter in books.manifest.parameters)
    layers: dict[tuple[str, str], list[_Read]] = defaultdict(list)
    patterns: dict[str, list[tuple[int, int, _Read]]] = defaultdict(list)
    for each in parameter_reads:
        pattern, layer = _pattern(each.parameter.name)
        layers[layer].append(each)
        depth = depths.get(each.reader.node.place)
        if layer[1] and depth is not None and len(layer[1]) < _DIGITS:
            patterns[pattern].append((int(layer[1]), depth, each))
    rising = {pattern for pattern, found in patterns.items() if _rises(found)}

    def is_known(each: _Read) -> bool:
        if shapes[each.parameter.shape] == 1 or _in_module(books, each) is not None:
            return True
        pattern, layer = _pattern(each.parameter.name)
        if pattern not in rising:
            return False
        like = [other for other in layers[layer] if other.parameter.shape == each.parameter.shape]
        surroundings = around[each.parameter.name]
        return sum(around[other.parameter.name] == surroundings for other in like) == 1

    return {each.parameter.name for each in parameter_reads if is_known(each)}


# by the module of the reader


def _in_module(books: Books, each: _Read) -> tuple[Parameter, str, str] | None:
    """Return the parameter of this shape that the reading module has for that input, the module, and the leaf name."""
    scope = books.ledger.traced_scopes.get(each.reader.node.place)
    if scope is None or each.entry.tensor.key in books.evaluated:
        return None  # the place of an evaluated value was checked when it was matched
    module = books.aligned.module(scope)
    leaf = _leaf(books, each)
    if leaf is None:
        return None
    found = books.tensor(f"{module}.{leaf}" if module else leaf)
    if not isinstance(found, Parameter) or found.shape != each.parameter.shape:
        return None
    return found, module, leaf


def _expected(books: Books, each: _Read) -> str | None:
    """Return the name of another parameter of this shape that belongs at the reader's input; None if there is none."""
    known = _in_module(books, each)
    if known is None:
        return _find_other_bias(books, each) or _of_another_module(books, each)
    if known[0].name == each.parameter.name:
        return None
    found, module, leaf = known
    own = {name for home, name in map(split_name, each.parameter.names) if home == module}
    if leaf in own:
        return None
    if own - _LEAVES and each.reader.node.op_type in ("Add", "Mul"):
        return None  # a module with a third vector of this shape adds or multiplies that, too (EvoNorm's `v`)
    if Line.FOLDED_BATCHNORM in books.parameters[each.parameter.name].chain and len(each.parameter.shape) < 2:
        return None  # a folded BatchNorm's bias is read by its convolution
    if _is_equal(books, each.parameter, found) or _is_named_in_part(books, each, module):
        return None
    return found.name


def _is_named_in_part(books: Books, each: _Read, module: str) -> bool:
    """Whether the reading node's scope may be the reading parameter's own module, named without some modules around it.

    TorchScript names a module only by those around it whose `forward` runs: a method that is called instead of
    `forward` leaves its module out. Then no node of the file has the module's full name.
    """
    home = split_name(each.parameter.name)[0]
    names = iter(home.split("."))
    is_part = module.rpartition(".")[2] == home.rpartition(".")[2] and all(
        name in names for name in module.split(".")
    )
    return is_part and all(books.aligned.module(one) != home for one in books.ledger.traced_scopes.values())


def _of_another_module(books: Books, each: _Read) -> str | None:
    """Return the reading module's own parameter of the same leaf name, if the module reads another module's instead.

    None if that module reads its own too, or if some reader's module is unknown: it may read both.
    """
    scope = books.ledger.traced_scopes.get(each.reader.node.place)
    if scope is None or each.entry.tensor.key in books.evaluated:
        return None
    module = books.aligned.module(scope)
    owners = [split_name(name) for name in each.parameter.names]
    if not module or any(is_inside(home, module) or is_inside(module, home) for home, _ in owners):
        return None
    for home, leaf in owners:
        own = f"{module}.{leaf}"
        found = books.tensor(own)
        if not isinstance(found, Parameter) or found.shape != each.parameter.shape:
            continue
        if _inside(books, home) != _inside(books, module):
            continue
        line = books.parameters.get(found.name)
        if line is None or _is_equal(books, each.parameter, found):
            continue
        homes = [
            books.ledger.traced_scopes.get(reader.node.place)
            for key in line.entries
            for reader in books.ledger.wiring.readers(books.entry(key).tensor, past=MOVES | DECODES)
        ]
        if homes and all(where is not None and books.aligned.module(where) != module for where in homes):
            return found.name
    return None


def _inside(books: Books, module: str) -> frozenset[tuple[str, tuple[int, ...]]]:
    """Return the names and shapes of the parameters in a module; they are equal for modules of one class."""
    start = f"{module}."
    return frozenset(
        (name.removeprefix(start), parameter.shape)
        for parameter in books.manifest.parameters
        for name in parameter.names
        if name.startswith(start)
    )


def _find_other_bias(books: Books, each: _Read) -> str | None:
    """Return the bias that belongs to the reading node's weight, as in a cell with several weights and biases.

    None if it is the one that is read, or has another shape.
    """
    node, slot = each.reader
    known = operator_of(node)
    if (
        known is None
        or known.kind not in (Kind.PRODUCT, Kind.CONVOLUTION)
        or known.slot(slot) is not Slot.BIAS
    ):
        return None
    stored = (books.ledger.wiring.find(node.graph_path, name) for name in node.inputs if name)
    lines = (books.entries.get(each.key) for each in stored if isinstance(each, StoredTensor))
    names = {line.parameter for line in lines if line is not None and line.parameter is not None}
    modules = {split_name(name)[0] for name in each.parameter.names}
    for weight in sorted(names - set(each.parameter.names)):
        home, leaf = split_name(weight)
        found = books.tensor(f"{home}.{_bias_of(leaf)}" if home else _bias_of(leaf))
        if home not in modules or "weight" not in leaf or not isinstance(found, Parameter):
            continue
        if found.shape == each.parameter.shape:
            is_same = found is each.parameter or _is_equal(books, each.parameter, found)
            return None if is_same else found.name
    return None


def _bias_of(leaf: str) -> str:
    """Return PyTorch's name of the bias that belongs to a weight.

    >>> _bias_of("weight_hh_l0")
    'bias_hh_l0'
    """
    return leaf.replace("weight", "bias", 1)


def _find_unread_biases(books: Books) -> Iterator[tuple[str, str]]:
    """Yield biases that the file reads in fewer places than PyTorch's program, though it reads their weight in all.

    A module that `forward` applies several times, such as a cell at each step, may have lost its bias at one of them.
    """
    if not books.manifest.calls:
        yield from _find_lost_biases(books)
    if len(books.manifest.calls) != 1:
        return
    program_reads = Counter(name for call in books.manifest.calls[0].calls for name in call.read("tensor"))
    file_reads = {reads[0].parameter.name: reads for reads in _reads_of(books) if reads}
    count_lacking = _count_lacking(books)
    for weight in books.manifest.parameters:
        home, leaf = split_name(weight.name)
        bias = books.tensor(f"{home}.{_bias_of(leaf)}" if home else _bias_of(leaf))
        if (
            "weight" not in leaf
            or not isinstance(bias, Parameter)
            or not {weight.name, bias.name} <= file_reads.keys()
        ):
            continue
        wanted = sum(program_reads[name] for name in bias.names)
        uses = sum(program_reads[name] for name in weight.names)
        found = uses - count_lacking(file_reads[weight.name], file_reads[bias.name])
        if count_lacking(file_reads[weight.name], []) == uses and found < wanted:
            yield bias.name, f"program:read in {found} of {wanted} places"


def _find_lost_biases(books: Books) -> Iterator[tuple[str, str]]:
    """Yield biases that are read less often than the weight of their module, if no program is known.

    Every use of the weight must be the module's own: the nodes' scopes tell so; or no node has a scope, at least two
    uses have the bias, and one lacks it. Another module's use of the weight may well omit the bias.
    """
    reads = {found[0].parameter.name: found for found in _reads_of(books) if found}
    count_lacking = _count_lacking(books)
    for name, uses in reads.items():
        home, leaf = split_name(name)
        bias = books.tensor(f"{home}.{_bias_of(leaf)}" if home else _bias_of(leaf))
        if "weight" not in leaf or not isinstance(bias, Parameter) or bias.name not in reads:
            continue
        wanted = count_lacking(uses, [])
        found = wanted - count_lacking(uses, reads[bias.name])
        kinds = {
            (use.reader.node.op_type if use.reader.node.op_type not in _PRODUCTS else "product")
            for use in uses
        }
        scopes = {books.ledger.traced_scopes.get(use.reader.node.place) for use in uses}
        is_own = None not in scopes and {books.aligned.module(scope or "") for scope in scopes} == {home}
        is_usual = scopes == {None} and found == wanted - 1 > 1
        has_another = all(
            use.reader.node.op_type in _BIASED
            and len(use.reader.node.inputs) > _BIASED[use.reader.node.op_type]
            for use in uses
        )
        if found < wanted and len(kinds) == 1 and (is_own or is_usual) and not has_another:
            yield bias.name, f"structure:read in {found} of {wanted} places"


_Choice: TypeAlias = "tuple[tuple[tuple[Place, ...], GraphPath, str], str]"
"""Condition of an If (the calls that lead to it, its graph, its name), and the branch that the If takes."""

_MOST_SITES = 1 << 10
"""Most reading nodes, counted once for each call of their function; beyond that each node counts once."""


def _count_lacking(books: Books) -> Callable[[Sequence[_Read], Sequence[_Read]], int]:
    """Return a function of the reads of a weight and its bias: the most reads by which a run may lack the bias.

    A node in a function reads its input at each call. A run takes one branch of an If, and the same branch of all Ifs
    with one condition. The other branch may read neither tensor.
    """
    wiring = books.ledger.wiring
    holders = {body.path: place for place, bodies in wiring.nested.items() for body in bodies}
    past = frozenset(MOVES | DECODES)

    def choices(path: GraphPath, calls: tuple[Place, ...] = ()) -> list[_Choice]:
        """Return the branches that enclose a graph, the outermost first."""
        found: list[_Choice] = []
        while path in holders:
            holder = wiring.node_at(holders[path])
            if holder.op_type == "If":
                name = next(iter(holder.inputs), "")
                condition = (calls, wiring.place(holder.graph_path, name) or holder.graph_path, name)
                found.append((condition, path[-1].rpartition(".")[2]))
            path = holder.graph_path
        return found[::-1]

    def count(uses: Iterable[tuple[int, Sequence[_Choice]]]) -> int:
        lacking = 0
        inner: dict[object, dict[str, list[tuple[int, Sequence[_Choice]]]]] = {}
        for sign, around in uses:
            if around:
                condition, branch = around[0]
                inner.setdefault(condition, {}).setdefault(branch, []).append((sign, around[1:]))
            else:
                lacking += sign
        for branches in inner.values():
            each = [count(found) for found in branches.values()]
            lacking += max(each if len(each) > 1 else [*each, 0])
        return lacking

    def sites(reads: Sequence[_Read]) -> list[list[_Choice]]:
        """Return for each reading node the branches that enclose it and the calls that lead to it."""
        once = [choices(read.reader.node.graph_path) for read in reads]
        if not wiring.calls or not reads:
            return once
        found: list[list[_Choice]] = []
        waiting: list[tuple[Reader, list[_Choice], tuple[Place, ...]]] = [
            (reader, [], ()) for reader in wiring.readers(reads[0].entry.tensor, past=past, inlined=False)
        ]
        while waiting:
            (node, slot), around, calls = waiting.pop()
            if len(found) + len(waiting) + len(calls) > _MOST_SITES:
                return once
            around = [*around, *choices(node.graph_path, calls)]
            called = wiring.calls.get(node.place)
            body = None if called is None else wiring.graphs.get(called)
            if body is None or not 0 <= slot < len(body.inputs):
                found.append(around)
                continue
            for inner in wiring.readers_of_input(GraphInput(body.path, body.inputs[slot])):
                is_moved = is_passed(inner, past)
                further = wiring.readers(inner.node, past=past, inlined=False) if is_moved else [inner]
                waiting += [(each, around, (*calls, node.place)) for each in further]
        return found

    def count_reads(weight: Sequence[_Read], bias: Sequence[_Read]) -> int:
        return count([*((1, around) for around in sites(weight)), *((-1, around) for around in sites(bias))])

    return count_reads if holders or wiring.calls else lambda weight, bias: len(weight) - len(bias)


_PRODUCTS = frozenset({"Gemm", "MatMul"})
_BIASED = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}
"""Operators with a bias input -> the slot of that input."""


_LEAVES = frozenset({"bias", "weight"})


def _leaf(books: Books, each: _Read) -> str | None:
    """Return PyTorch's leaf name for a node's input, `weight` or `bias`; None if the operator does not tell."""
    node, slot = each.reader
    known = operator_of(node)
    if known is None:
        return None
    if known.kind in (Kind.PRODUCT, Kind.CONVOLUTION, Kind.NORMALIZES, Kind.LOOKS_UP):
        what = known.slot(slot)
        if what in (Slot.LEARNED, Slot.CODES, Slot.TABLE):
            return "weight"
        first = next((place for place, each_slot in enumerate(known.slots) if each_slot is Slot.BIAS), None)
        return "bias" if slot == first else None
    is_vector = sum(dim != 1 for dim in each.parameter.shape) <= 1
    if node.op_type == "Add" and is_vector:
        return "bias"
    return "weight" if node.op_type == "Mul" and is_vector else None


def _is_equal(books: Books, one: Parameter | Buffer, other: Parameter | Buffer) -> bool:
    """Whether both have the same values, or unknown ones: then an exchange makes no difference."""
    samples = [books.contents.originals.samples(parameter) for parameter in (one, other)]
    if samples[0] is None or samples[1] is None:
        return True
    return samples[0].tobytes() == samples[1].tobytes()


_STATISTICS = {3: "running_mean", 4: "running_var"}
"""Inputs of a BatchNormalization that hold running statistics."""


def _find_exchanged_statistics(books: Books) -> Iterator[Key]:
    """Yield the statistics that a BatchNormalization reads in place of those of the module of its weight and bias."""
    wiring = books.ledger.wiring
    for node in books.ledger.model.nodes():
        if node.op_type != "BatchNormalization" or not node.is_standard:
            continue
        provided = [wiring.find(node.graph_path, name) for name in node.inputs]
        keys = [found.key if isinstance(found, StoredTensor) else None for found in provided]
        lines = [None if key is None else books.entries.get(key) for key in keys]
        names = [None if line is None else line.parameter for line in lines]
        modules = {split_name(name)[0] if name is not None else None for name in names[1:3]}
        home = modules.pop() if len(modules) == 1 else None
        for slot, leaf in _STATISTICS.items() if home is not None and len(names) > max(_STATISTICS) else ():
            own, name, line = books.tensor(f"{home}.{leaf}" if home else leaf), names[slot], lines[slot]
            read = None if name is None else books.tensor(name)
            if own is None or read is None or line is None or read is own:
                continue
            if not MEANINGS[line.line].unbalanced and not _is_equal(books, own, read):
                yield line.key


# cosines and sines

_TURNING = MOVES | DECODES | {"Cast", "Neg"}
"""Operators that rotate a vector: they exchange its halves, or its even and odd elements, and negate one of these."""
_MOST_TURNING = 24
"""Most nodes of such a rotation."""


def _find_exchanged_rotations(books: Books) -> Iterator[Key]:
    """Yield tables of cosines and sines that are exchanged, judged by the factor that each multiplies.

    A rotation is `x cos + turned(x) sin`, where turning negates half of the numbers, or `x cos - y sin` of two halves.
    The negated or subtracted term is the one that sines multiply.
    """
    wiring = books.ledger.wiring
    tables: dict[Key, bool] = {}
    arrays: dict[Key, Reals] = {}
    products: dict[Place, tuple[Key, Node, int]] = {}
    for key, line in books.entries.items():
        tensor = books.entry(key).tensor
        if (
            not _may_be_of_angles(line)
            or not tensor.dtype.is_floating
            or not 1 < tensor.numel <= _MOST_ANGLES
        ):
            continue
        readers = wiring.readers(tensor, past=MOVES | DECODES | {"Cast"})
        readers = [each for each in readers if each.node.op_type == "Mul" and each.node.is_standard]
        array = books.contents.array(books.entry(key)) if readers else None
        is_sine = None if array is None else _is_of_sines(array)
        if array is None or is_sine is None:
            continue
        tables[key], arrays[key] = is_sine, array.astype(np.float64)
        for node, slot in readers:
            products[node.place] = key, node, 1 - slot
    seen: set[Place] = set()
    for _, node, _ in products.values():
        for sum_, slot in wiring.readers(node):
            if sum_.op_type not in ("Add", "Sub") or slot or sum_.place in seen:
                continue
            sources = [wiring.find(sum_.graph_path, name) for name in sum_.inputs]
            terms = [products[s.place] for s in sources if isinstance(s, Node) and s.place in products]
            if len(terms) != 2 or len(sources) != 2:
                continue
            (one, *_), (two, *_) = terms
            if tables[one] == tables[two] or not _are_of_one_circle(arrays[one], arrays[two]):
                continue
            seen.add(sum_.place)
            is_difference = sum_.op_type == "Sub"
            negated = [
                key
                for (key, product, other), is_second in zip(terms, (False, True), strict=True)
                if (is_second if is_difference else _is_negated(books, product, other))
            ]
            if len(negated) == 1 and not tables[negated[0]]:
                yield from (one, two)


_MOST_ANGLES = 1 << 22
"""Most elements of a table of angles."""


def _may_be_of_angles(line: EntryLine) -> bool:
    """Whether an entry may be a table of angles: computed from a buffer, added, evaluated or unexplained."""
    is_of_buffer = line.line is Line.BUFFER and line.piece is None
    return line.line in (Line.ADDED, Line.EVALUATED, Line.UNEXPLAINED) or is_of_buffer


def _are_of_one_circle(one: Reals, other: Reals) -> bool:
    """Whether the squares of two tables sum to the same number everywhere."""
    if one.shape != other.shape:
        return False
    sums = one * one + other * other
    return bool((np.abs(sums - sums.flat[0]) <= 2 * _EVEN * sums.flat[0]).all())


def _is_of_sines(array: Array) -> bool | None:
    """Return True for a table of sines (first row 0), False for cosines (first row one number), None for neither."""
    flat = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
    first = flat[0].astype(np.float64)
    largest = float(np.abs(flat.astype(np.float64)).max(initial=0.0))
    if not largest:
        return None
    if not first.any():
        return True
    is_even = bool((np.abs(first - largest) <= _EVEN * largest).all())
    return False if is_even and bool((flat != flat[0]).any()) else None


_EVEN = 2e-3
"""Relative tolerance of cosines of 0 in half precision."""


def _is_negated(books: Books, node: Node, slot: int) -> bool:
    """Whether an input of a node was rotated, with a part of it negated."""
    wiring = books.ledger.wiring
    waiting, seen = [wiring.find(node.graph_path, node.inputs[slot])], set[Place]()
    while waiting and len(seen) < _MOST_TURNING:
        source = waiting.pop()
        if not isinstance(source, Node) or source.op_type not in _TURNING or source.place in seen:
            continue
        if source.op_type == "Neg":
            return True
        seen.add(source.place)
        waiting += [wiring.find(source.graph_path, name) for name in source.inputs if name]
    return False


# by the surroundings


_Around = tuple[object, ...]
"""Surroundings of a weight's node."""


def _out_of_pattern(
    books: Books, read: Sequence[_Read], depths: Mapping[Place, int], around: Mapping[str, _Around]
) -> Iterator[str]:
    """Yield weights whose surroundings in one layer are those of another weight of the same shape in other layers."""
    layers: dict[tuple[str, str], dict[str, _Read]] = defaultdict(dict)
    places: dict[str, Counter[object]] = defaultdict(Counter)
    for each in read:
        pattern, layer = _pattern(each.parameter.name)
        layers[layer][pattern] = each
        places[pattern][around[each.parameter.name]] += 1
    exchanges: dict[frozenset[str], dict[str, bool]] = defaultdict(dict)
    for found in layers.values():
        for pattern, each in found.items():
            surroundings = around[each.parameter.name]
            if len(places[pattern]) < 2:
                continue
            for other_pattern, other in found.items():
                if other_pattern == pattern or other.parameter.shape != each.parameter.shape:
                    continue
                other_surroundings = around[other.parameter.name]
                if surroundings == other_surroundings or _is_equal(books, each.parameter, other.parameter):
                    continue
                if _is_sibling(pattern, other_pattern) and _computes_in_order(each, other, depths):
                    continue
                # Each of the two has, in some other layer, the surroundings that the other has in this one.
                if surroundings in places[other_pattern] and other_surroundings in places[pattern]:
                    current_count = places[pattern][surroundings] + places[other_pattern][other_surroundings]
                    is_rare = (
                        places[other_pattern][surroundings] + places[pattern][other_surroundings]
                        > current_count
                    )
                    exchanges[frozenset((pattern, other_pattern))][each.parameter.name] = is_rare
    # Report the layers in the minority; if there is none, all of them.
    yield from sorted(
        {
            name
            for names in exchanges.values()
            for name, is_rare in names.items()
            if is_rare or not any(names.values())
        }
    )


def _pattern(name: str) -> tuple[str, tuple[str, str]]:
    """Return a name with its first number replaced by `#`, and the layer: the text before that number, and the number.

    >>> _pattern("encoder.layer.3.attention.query.weight")
    ('encoder.layer.#.attention.query.weight', ('encoder.layer.', '3'))
    """
    first = next(iter(_NUMBER.finditer(name)), None)
    if first is None:
        return name, (name, "")
    return f"{name[: first.start()]}#{name[first.end() :]}", (name[: first.start()], first.group())


def _is_sibling(pattern: str, other: str) -> bool:
    """Whether two patterns differ in numbers only: layers of one stage, which are alike except at its ends."""
    return _NUMBER.sub("#", pattern) == _NUMBER.sub("#", other)


def _computes_in_order(one: _Read, other: _Read, depths: Mapping[Place, int]) -> bool:
    """Whether two layers of one stage compute in the order of their numbers.

    The last layer of a short stage has the surroundings of a later layer of a long stage, without any exchange.
    """
    first, second = sorted((one, other), key=lambda each: natural_order(each.parameter.name))
    before, after = depths.get(first.reader.node.place), depths.get(second.reader.node.place)
    return before is not None and after is not None and before < after


def _surroundings(books: Books, reader: Reader) -> _Around:
    """Return operators and input slots of the steps after a weight's node, and the operators of two steps before it."""
    wiring = books.ledger.wiring
    steps: list[object] = [(reader.node.op_type, reader.slot)]
    layer: list[Node] = [reader.node]
    for _ in range(_DEPTH):
        readers = (each for node in layer for each in wiring.readers(node))
        next_readers = list(itertools.islice(readers, _MOST_AROUND))
        steps.append(tuple(sorted((each.node.op_type, each.slot) for each in next_readers)))
        layer = [each.node for each in next_readers]
    layer = [reader.node]
    for _ in range(2):
        sources = (source for node in layer for source in wiring.producers(node) if isinstance(source, Node))
        layer = list(itertools.islice(sources, _MOST_AROUND))
        steps.append(tuple(sorted(source.op_type for source in layer)))
    return tuple(steps)


# by the order in which layers compute


def _out_of_order(books: Books, read: Sequence[_Read], depths: Mapping[Place, int]) -> Iterator[str]:
    """Yield weights of sequential layers that are out of the layers' order, if most other weights keep it."""
    patterns: dict[str, list[tuple[int, int, _Read]]] = defaultdict(list)
    for each in read:
        pattern, (_, number) = _pattern(each.parameter.name)
        depth = depths.get(each.reader.node.place)
        if number and depth is not None and len(number) < _DIGITS:
            patterns[pattern].append((int(number), depth, each))
    families: dict[str, list[str]] = defaultdict(list)
    for pattern in patterns:
        families[pattern.partition("#")[0]].append(pattern)
    for members in families.values():
        rising = [pattern for pattern in members if _rises(patterns[pattern])]
        falling = [
            pattern
            for pattern in members
            if pattern not in rising and _is_sequence(books, patterns[pattern], depths)
        ]
        if len(rising) <= len(falling):
            continue  # no order of layers that most weights keep
        for pattern in falling:
            yield from _exchanged(books, patterns[pattern])


def _is_sequence(books: Books, found: Sequence[tuple[int, int, _Read]], depths: Mapping[Place, int]) -> bool:
    """Whether several weights compute in sequence, in any order.

    Parallel weights do not, nor weights on branches of different lengths, such as a neck's on ever earlier stages.
    """
    if len(found) < 2 or len({depth for _, depth, _ in found}) < len(found):
        return False
    by_depth = [each for _, _, each in sorted(found, key=lambda item: item[1])]
    return all(_follows(books, one, other, depths) for one, other in itertools.pairwise(by_depth))


def _rises(found: Iterable[tuple[int, int, _Read]]) -> bool:
    depths = [depth for _, depth, _ in sorted(found, key=lambda item: item[0])]
    return len(depths) > 1 and all(one < other for one, other in itertools.pairwise(depths))


def _exchanged(books: Books, found: Sequence[tuple[int, int, _Read]]) -> Iterator[str]:
    """Yield the weights whose rank by depth differs from their rank by number."""
    by_number = sorted(found, key=lambda item: item[0])
    by_depth = sorted(found, key=lambda item: item[1])
    for (_, _, expected), (_, _, actual) in zip(by_number, by_depth, strict=True):
        one, other = expected.parameter, actual.parameter
        if one.name != other.name and one.shape == other.shape and not _is_equal(books, one, other):
            yield one.name


def _follows(books: Books, one: _Read, other: _Read, depths: Mapping[Place, int]) -> bool:
    """Whether the result of one weight's node reaches the other's; True for nodes of two graphs."""
    start, end = one.reader.node, other.reader.node
    if start.graph_path != end.graph_path:
        return True
    least = depths.get(start.place, 0)
    waiting, seen = [end], {end.place}
    while waiting:
        node = waiting.pop()
        if node.place == start.place or node.graph_path != start.graph_path:
            return True
        for source in books.ledger.wiring.producers(node):
            if (
                isinstance(source, Node)
                and source.place not in seen
                and depths.get(source.place, least) >= least
            ):
                seen.add(source.place)
                waiting.append(source)
    return False


def _depths(books: Books) -> Mapping[Place, int]:
    """Return for each node of a sorted graph the length of the longest path to it, in nodes.

    A node with bodies comes after all nodes that the bodies read from outside. The bodies start after these nodes too,
    and the node's readers come after the bodies.
    """
    depths: dict[Place, int] = {}
    starts: dict[Place, int] = {}
    wiring = books.ledger.wiring
    bodies = wiring.nested

    def inside(node: Node) -> Iterator[Node]:
        yield node
        for graph in bodies.get(node.place, ()):
            for inner in graph.nodes:
                yield from inside(inner)

    for graph in books.ledger.model.graphs:
        start = starts.get(graph.parent, 0) if graph.parent is not None else 0
        for node in graph.nodes:
            parts = [*inside(node)] if node.place in bodies else [node]
            sources = (wiring.find(part.graph_path, name) for part in parts for name in part.inputs if name)
            starts[node.place] = max(
                (depths.get(source.place, 0) for source in sources if isinstance(source, Node)), default=0
            )
            starts[node.place] = max(start, starts[node.place])
            depths[node.place] = starts[node.place] + len(parts)
    return depths
