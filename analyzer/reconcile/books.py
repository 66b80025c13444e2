"""The open books of a reconciliation: which PyTorch tensors and which stored tensors have found their line so far.

Each rule (one file each) takes the books, settles what it can prove, and leaves the rest to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from analyzer.content import decode_values
from analyzer.ledger import Entry, Ledger
from analyzer.manifest import Buffer, Manifest, Parameter
from analyzer.model import Key
from analyzer.reconcile.contents import Contents
from analyzer.reconcile.lines import EntryLine, Line, ParameterLine
from analyzer.reconcile.names import Alignment
from analyzer.scopes import mangle, read_provenance
from analyzer.wiring import Reader

__all__ = ["Books", "Suspect"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A stored tensor that has a PyTorch tensor's name but not its content."""

    entry: Entry
    tensor: Parameter | Buffer


@dataclass
class Books:
    """Mutable on purpose, and only while `reconcile` runs."""

    ledger: Ledger
    manifest: Manifest
    contents: Contents
    aligned: Alignment
    parameters: dict[str, ParameterLine] = field(default_factory=dict)
    """Settled PyTorch parameters, by first name."""
    entries: dict[Key, EntryLine] = field(default_factory=dict)
    """Settled stored tensors."""
    suspects: list[Suspect] = field(default_factory=list)
    traced: frozenset[str] = frozenset()
    """Mangled names of the parameters that traced nodes in the file mention."""
    _modules: dict[Key, frozenset[str]] = field(default_factory=dict)
    _by_name: dict[str, Parameter | Buffer] = field(default_factory=dict)
    _by_key: dict[Key, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name = {name: tensor for tensor in self.manifest.tensors for name in tensor.names}
        self.traced = read_provenance(self.ledger.model).parameters
        self._by_key = {entry.tensor.key: entry for entry in self.ledger.entries}

    def tensor(self, name: str) -> Parameter | Buffer | None:
        """The PyTorch tensor that a name in the file means."""
        found = self.aligned(name)
        return None if found is None else self._by_name[found]

    def entry(self, key: Key) -> Entry:
        return self._by_key[key]

    def find(self, key: Key) -> Entry | None:
        """The entry with this key, where there is one."""
        return self._by_key.get(key)

    def free_parameters(self) -> Iterator[Parameter]:
        yield from [p for p in self.manifest.parameters if p.name not in self.parameters]

    def free_entries(self) -> Iterator[Entry]:
        suspected = {suspect.entry.tensor.key for suspect in self.suspects}
        for entry in self.ledger.entries:
            if entry.tensor.key not in self.entries and entry.tensor.key not in suspected:
                yield entry

    def readers(self, entry: Entry) -> list[Reader]:
        """The nodes that read a stored tensor."""
        return self.ledger.wiring.readers(entry.tensor)

    def reader_modules(self, entry: Entry) -> frozenset[str]:
        """The PyTorch modules whose nodes read a stored tensor, as far as nodes tell their module."""
        key = entry.tensor.key
        if key not in self._modules:
            positions = {(reader.node.graph_path, reader.node.position) for reader in self.readers(entry)}
            scopes = self.ledger.node_scopes
            self._modules[key] = frozenset(
                self.aligned.module(scopes[position]) for position in positions if position in scopes
            )
        return self._modules[key]

    def is_dropped_zero(self, parameter: Parameter) -> bool:
        """Whether it is all zeros and a traced node names it: the optimizer takes a bias of zeros off its node."""
        element = parameter.dtype.to_numpy()
        if parameter.content is None or not parameter.content.constant_filled or element is None:
            return False
        if decode_values(parameter.content.samples, element).any():
            return False
        return any(mangle(name) in self.traced for name in parameter.names)

    def hold(
        self,
        parameter: Parameter,
        entry: Entry,
        line: Line,
        decided_by: str,
        error: float | None = None,
        learned: int | None = None,
    ) -> None:
        """Settle that `entry` is where `parameter` is counted; error is 0 where contents were found equal.

        `learned` is how many of its elements count, all unless it is said.
        """
        self.parameters[parameter.name] = ParameterLine(
            parameter.name, line, (line,), (entry.tensor.key,), decided_by, error
        )
        self.entries[entry.tensor.key] = EntryLine(
            entry.tensor.key,
            line,
            parameter.name,
            decided_by,
            entry.logical_numel if learned is None else learned,
        )

    def merge(
        self, parameter: Parameter, entry: Entry, line: Line, decided_by: str, error: float | None
    ) -> None:
        """Settle that `parameter` has no tensor of its own: `entry`, which is another's, holds it."""
        key = entry.tensor.key
        self.parameters[parameter.name] = ParameterLine(
            parameter.name, line, (line,), (key,), decided_by, error
        )

    def lose(self, parameter: Parameter, line: Line, decided_by: str) -> None:
        """Settle that nothing in the file holds `parameter`."""
        self.parameters[parameter.name] = ParameterLine(parameter.name, line, (line,), (), decided_by, None)

    def copy(self, parameter: Parameter, entry: Entry, decided_by: str) -> None:
        """Settle that `entry` holds a parameter once more."""
        self.entries[entry.tensor.key] = EntryLine(entry.tensor.key, Line.COPIED, parameter.name, decided_by)
        settled = self.parameters[parameter.name]
        chain = settled.chain if Line.COPIED in settled.chain else (*settled.chain, Line.COPIED)
        self.parameters[parameter.name] = replace(
            settled, chain=chain, entries=(*settled.entries, entry.tensor.key)
        )

    def settle(
        self, entry: Entry, line: Line, decided_by: str, name: str | None = None, *, is_counted: bool = False
    ) -> None:
        """Settle what an entry is that holds no one parameter; it may still be learned, and counted."""
        learned = entry.logical_numel if is_counted else 0
        self.entries[entry.tensor.key] = EntryLine(entry.tensor.key, line, name, decided_by, learned)
