"""Open books of a reconciliation: the PyTorch tensors and stored tensors that have found their line so far.

Each rule takes the books, settles what it can prove, and leaves the rest to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzer.account.ledger import Entry, Ledger, Severity
from analyzer.account.scopes import mangle, module_of, read_provenance
from analyzer.manifest import Buffer, Manifest, Parameter, Traced
from analyzer.model import Key, Node, Place, StoredTensor
from analyzer.model.dtypes import HALF_STEPS, DType
from analyzer.model.operators import CARRIES, DECODES, Kind, Slot, operator_of
from analyzer.model.wiring import Reader
from analyzer.reconciliation.contents import Contents, Fit
from analyzer.reconciliation.fixed import Fixed
from analyzer.reconciliation.lines import SAMPLED, EntryLine, Line, ParameterLine, Piece, name_of
from analyzer.reconciliation.names import Alignment
from analyzer.records import Frozen, Mutable, field, replace

_FACTORS = frozenset({Slot.LEARNED, Slot.BIAS, Slot.CODES})
"""Slots of recurrent and attention operators that take weights; attention masks or adds its other inputs."""


def _multiplies(reader: Reader) -> bool:
    """Whether a node multiplies by this input, or adds it to a product: a matrix in that place is a weight."""
    known = operator_of(reader.node) if reader.node.is_standard else None
    if known is None or reader.slot < 0:
        return False
    if known.kind in (Kind.PRODUCT, Kind.CONVOLUTION):
        return known.slot(reader.slot) in _FACTORS | {Slot.DATA}
    return known.kind in (Kind.ATTENTION, Kind.RECURRENT) and (
        known.slot(reader.slot) in _FACTORS or (known.kind is Kind.ATTENTION and reader.slot < 3)
    )


class Suspect(Frozen):
    """A stored tensor that has a PyTorch tensor's name but not its content."""

    entry: Entry
    tensor: Parameter | Buffer


class Holding(Frozen):
    """The part of a stored tensor in which a parameter is counted."""

    key: Key
    learned: int
    """Elements of the parameter that are in it, each once."""
    stored: int
    """Stored elements that are its share: all elements of the tensor if it holds no other parameter."""


def piece_of(entry: Entry, fit: Fit) -> Piece:
    """Return the piece of a parameter that one stored tensor holds whole."""
    return Piece(entry.tensor.key, fit.layout.shape, fit.layout.axes)


def is_inside(inner: str, outer: str) -> bool:
    """Whether a module path equals another or lies inside it; every path lies inside the root, ""."""
    return not outer or f"{inner}.".startswith(f"{outer}.")


def is_near(one: str, other: str) -> bool:
    """Whether two module paths are equal, or one lies inside the other."""
    return is_inside(one, other) or is_inside(other, one)


class Books(Mutable):
    """State of a reconciliation that the rules fill in; mutable on purpose, and only while `reconcile` runs."""

    ledger: Ledger
    manifest: Manifest
    contents: Contents
    aligned: Alignment
    parameters: dict[str, ParameterLine] = field(default_factory=dict)
    """Settled PyTorch parameters, by their first name."""
    entries: dict[Key, EntryLine] = field(default_factory=dict)
    """Settled stored tensors."""
    holdings: dict[str, list[Holding]] = field(default_factory=dict)
    """Stored tensors in which each settled parameter is counted, by its first name."""
    suspects: list[Suspect] = field(default_factory=list)
    traced: frozenset[str] = frozenset()
    """Mangled names of the parameters that traced nodes in the file mention."""
    placed: frozenset[str] = frozenset()
    """Parameters for which a wrong place would have been detected."""
    generated: dict[Place, int] = field(default_factory=dict)
    """Nodes that generate numbers at run time where weights belong -> number of elements; 0 if unknown."""
    evaluated: dict[Key, Traced] = field(default_factory=dict)
    """Values of PyTorch's program, by the stored tensors that hold them."""
    changed: dict[str, tuple[str, Severity]] = field(default_factory=dict)
    """Parameters that nodes change, as PyTorch may do too -> the operator, and the severity of the finding."""
    turned: list[str] = field(default_factory=list)
    """Square weights that the file reads transposed relative to a `Linear`; nothing tells whether PyTorch does so."""
    misfits: set[Key] = field(default_factory=set)
    """Entries whose readers rule out that they hold any parameter in its stored layout."""
    _modules: dict[Key, frozenset[str]] = field(default_factory=dict)
    _owners_by_shape: dict[tuple[int, ...], set[str]] = field(default_factory=dict)
    _by_name: dict[str, Parameter | Buffer] = field(default_factory=dict)
    _by_key: dict[Key, Entry] = field(default_factory=dict)
    _half_type: tuple[int, DType | None] = (-1, None)
    _fixed: Fixed | None = None

    def __post_init__(self) -> None:
        self._by_name = {name: tensor for tensor in self.manifest.tensors for name in tensor.names}
        self.traced = read_provenance(self.ledger.model).parameters
        self._by_key = {entry.tensor.key: entry for entry in self.ledger.entries}

    @property
    def fixed(self) -> Fixed:
        """Predicate: whether a node computes from stored values alone; cached, and shared by all rules."""
        if self._fixed is None:
            self._fixed = Fixed(self.ledger.wiring)
        return self._fixed

    def tensor(self, name: str) -> Parameter | Buffer | None:
        """Return the PyTorch tensor that a name in the file denotes; None if there is none."""
        found = self.aligned(name)
        return None if found is None else self._by_name[found]

    def entry(self, key: Key) -> Entry:
        return self._by_key[key]

    def find(self, key: Key) -> Entry | None:
        """Return the entry with this key; None if there is none."""
        return self._by_key.get(key)

    def free_parameters(self) -> Iterator[Parameter]:
        yield from [p for p in self.manifest.parameters if p.name not in self.parameters]

    def free_entries(self) -> Iterator[Entry]:
        suspected = {suspect.entry.tensor.key for suspect in self.suspects}
        for entry in self.ledger.entries:
            if entry.tensor.key not in self.entries and entry.tensor.key not in suspected:
                yield entry

    def open_entries(self, tensor: Parameter | None = None) -> list[Entry]:
        """Return the entries of all suspects, or of one tensor's suspects, and then the free entries."""
        suspected = [each.entry for each in self.suspects if tensor is None or each.tensor is tensor]
        return [*suspected, *self.free_entries()]

    def half_type(self) -> DType | None:
        """Return the half-precision type in which the file holds every parameter found so far; None if not all do."""
        if self._half_type[0] != len(self.parameters):
            stored = (self.entry(key) for settled in self.parameters.values() for key in settled.entries)
            types = {entry.tensor.dtype for entry in stored if self.contents.encoding(entry) is None}
            dtype = types.pop() if len(types) == 1 else None
            self._half_type = len(self.parameters), dtype if dtype in HALF_STEPS else None
        return self._half_type[1]

    def release(self, *entries: Entry) -> None:
        """Remove entries from the suspects, because a formula explains them."""
        keys = {entry.tensor.key for entry in entries}
        self.suspects = [suspect for suspect in self.suspects if suspect.entry.tensor.key not in keys]

    def readers(self, entry: Entry) -> list[Reader]:
        """Return the nodes that read a stored tensor."""
        return self.ledger.wiring.readers(entry.tensor)

    def has_module(self, reader: Reader) -> bool:
        """Whether the file names the module of a node."""
        return reader.node.place in self.ledger.traced_scopes

    def users(self, entry: Entry) -> Iterator[Node]:
        """Yield the nodes that read a tensor, and those that compute with it after nodes that decode or move it."""
        direct = {reader.node.place: reader.node for reader in self.readers(entry)}
        behind = self.ledger.wiring.readers(entry.tensor, past=CARRIES)
        yield from (direct | {reader.node.place: reader.node for reader in behind}).values()

    def user_modules(self, entry: Entry) -> frozenset[str]:
        """Return the PyTorch modules whose nodes compute with a stored tensor, as far as nodes name them."""
        scopes = self.ledger.traced_scopes
        places = {node.place for node in self.users(entry)}
        return frozenset(self.aligned.module(scopes[place]) for place in places if place in scopes)

    def is_multiplied(self, entry: Entry) -> bool:
        """Whether some node multiplies by a tensor, directly or after nodes that only decode or move it.

        A product with a stored weight does not count if the tensor reaches it concatenated with an activation.
        """
        readers = self.ledger.wiring.readers(entry.tensor, past=CARRIES)
        return any(_multiplies(reader) and not self._is_data(reader) for reader in readers)

    def _is_data(self, reader: Reader) -> bool:
        """Whether a product multiplies this input as data: it depends on a model input, the other factor does not."""
        node, known = reader.node, operator_of(reader.node)
        is_product = known is not None and known.kind in (Kind.PRODUCT, Kind.CONVOLUTION)
        if not is_product or len(node.inputs) < 2 or reader.slot > 1:
            return False
        operand, weight = (
            self.ledger.wiring.find(node.graph_path, node.inputs[slot])
            for slot in (reader.slot, 1 - reader.slot)
        )
        is_weight = isinstance(weight, StoredTensor) or (isinstance(weight, Node) and self.fixed(weight))
        return is_weight and isinstance(operand, Node) and not self.fixed(operand)

    def reader_modules(self, entry: Entry) -> frozenset[str]:
        """Return the PyTorch modules whose nodes read a stored tensor, decoded or not, as far as nodes name them.

        The tracer passes a tensor that it has merged with an equal one on through an Identity.
        """
        key = entry.tensor.key
        if key not in self._modules:
            # The call names the module, not the function's body: several modules may share one function.
            self._modules[key] = self._modules_of(entry, inlined=False) or self._modules_of(
                entry, inlined=True
            )
        return self._modules[key]

    def _modules_of(self, entry: Entry, *, inlined: bool) -> frozenset[str]:
        wiring, scopes = self.ledger.wiring, self.ledger.traced_scopes
        direct = wiring.readers(entry.tensor, inlined=inlined)
        decoded = wiring.readers(entry.tensor, past=DECODES | {"Identity"}, inlined=inlined)
        places = {reader.node.place for reader in (*direct, *decoded)}
        return frozenset(self.aligned.module(scopes[place]) for place in places if place in scopes)

    def is_elsewhere(self, entry: Entry, tensor: Parameter | Buffer) -> bool:
        """Whether another module than the parameter's reads an entry, and has a parameter of this shape itself.

        Equal content is then in the wrong place: somebody has swapped two layers. Nested modules do not count as
        different: one may read parameters of the other. Vectors are exempt, because a bias may be fused with the next
        normalization.
        """
        modules, owners = self.reader_modules(entry), {module_of(name) for name in tensor.names}
        if entry.tensor.key in self.misfits:
            return True
        if isinstance(tensor, Buffer) or len(tensor.shape) < 2 or not modules:
            return False
        if any(is_inside(one, other) or is_inside(other, one) for one in modules for other in owners):
            return False
        if not self._owners_by_shape:
            for parameter in self.manifest.parameters:
                for name in parameter.names:
                    self._owners_by_shape.setdefault(parameter.shape, set()).add(module_of(name))
        other_owners = self._owners_by_shape[tensor.shape] - owners
        return any(is_inside(other, module) for module in modules for other in other_owners)

    def is_zero(self, parameter: Parameter) -> bool:
        """Whether all values of a parameter are known, and zero."""
        samples = self.contents.originals.samples(parameter)
        return samples is not None and not samples.any() and self.contents.originals.is_constant(parameter)

    def is_dropped_zero(self, parameter: Parameter) -> bool:
        """Whether a parameter is all zeros and a traced node names it: the optimizer drops a bias of zeros."""
        return self.is_zero(parameter) and any(mangle(name) in self.traced for name in parameter.names)

    def has_weight_of(self, parameter: Parameter) -> bool:
        """Whether a parameter is a bias by its name, and the file has the weight of the same layer."""
        for name in parameter.names:
            beginning = name.removesuffix("bias")
            line = self.parameters.get(f"{beginning}weight") if beginning != name else None
            if line is not None and line.entries:
                return True
        return False

    def assign(
        self,
        parameter: Parameter,
        entry: Entry,
        chain: tuple[Line, ...],
        decided_by: str,
        error: float | None = None,
        learned: int | None = None,
        pieces: tuple[Piece, ...] = (),
    ) -> None:
        """Settle that `parameter` is counted in `entry`, which holds nothing else.

        `learned` is the number of its elements that count; by default all elements that the entry represents.
        """
        count = self.contents.numel(entry) if learned is None else learned
        # The padding of tiles belongs to no parameter.
        stored = count if entry.tensor.key in self.contents.tiles else entry.tensor.numel
        holding = Holding(entry.tensor.key, count, stored)
        before = self.entries.pop(entry.tensor.key, None)
        if before is not None and before.parameter is not None:
            self.holdings.pop(before.parameter, None)
        self.assign_parts(parameter, [holding], chain, decided_by, error, pieces)

    def assign_parts(
        self,
        parameter: Parameter,
        holdings: list[Holding],
        chain: tuple[Line, ...],
        decided_by: str,
        error: float | None,
        pieces: tuple[Piece, ...] = (),
    ) -> None:
        """Settle that `parameter` is counted in one or more tensors, or in parts of them."""
        line = name_of(chain)
        keys = tuple(holding.key for holding in holdings)
        self.parameters[parameter.name] = ParameterLine(
            parameter.name, line, chain, keys, decided_by, error, pieces
        )
        self.holdings[parameter.name] = holdings
        for holding in holdings:
            before = self.entries.get(holding.key)
            if before is None:
                self.entries[holding.key] = EntryLine(
                    holding.key, line, parameter.name, decided_by, holding.learned
                )
            else:
                self.entries[holding.key] = replace(before, learned=before.learned + holding.learned)

    def merge(
        self, parameter: Parameter, entry: Entry, line: Line, decided_by: str, error: float | None
    ) -> None:
        """Settle that `parameter` has no tensor of its own: `entry` holds it, and counts for another parameter."""
        settled = self.parameters[parameter.name] = ParameterLine(
            parameter.name, line, (line,), (entry.tensor.key,), decided_by, error
        )
        if line is Line.DEDUPLICATED:
            fit = self.contents.fit(entry, parameter)
            pieces = () if fit is None else (piece_of(entry, fit),)
            self.parameters[parameter.name] = replace(settled, pieces=pieces)

    def settle_absent(self, parameter: Parameter, line: Line, decided_by: str) -> None:
        """Settle that nothing in the file holds `parameter`."""
        self.parameters[parameter.name] = ParameterLine(parameter.name, line, (line,), (), decided_by, None)

    def copy(self, parameter: Parameter, entry: Entry, decided_by: str, piece: Piece | None = None) -> None:
        """Settle that `entry` is another copy of a parameter, in the same file or in another file of the artifact.

        `piece` tells how the copy was computed, if not as the first.
        """
        root = self.ledger.model.root
        roots = {root(key[0]) for key in self.parameters[parameter.name].entries}
        line = Line.COPIED if root(entry.tensor.graph_path) in roots else Line.DUPLICATED_FILE
        self.entries[entry.tensor.key] = EntryLine(
            entry.tensor.key, line, parameter.name, decided_by, piece=piece
        )
        settled = self.parameters[parameter.name]
        chain = settled.chain if line in settled.chain else (*settled.chain, line)
        is_sampled = settled.has_sampled_copy or not SAMPLED.isdisjoint(re.split("[+: ]", decided_by))
        entries = (*settled.entries, entry.tensor.key)
        self.parameters[parameter.name] = replace(
            settled, chain=chain, entries=entries, has_sampled_copy=is_sampled
        )

    def settle(
        self,
        entry: Entry,
        line: Line,
        decided_by: str,
        name: str | None = None,
        *,
        is_counted: bool = False,
        piece: Piece | None = None,
    ) -> None:
        """Settle the line of an entry that holds no single parameter; it may still be learned, and counted."""
        learned = self.contents.numel(entry) if is_counted else 0
        self.entries[entry.tensor.key] = EntryLine(entry.tensor.key, line, name, decided_by, learned, piece)
