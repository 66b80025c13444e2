"""A PyTorch tensor and its place in the file -> whether the file gives it back, or why not, or not every bit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from analyzer.account.decoding import CODES
from analyzer.account.scopes import module_of
from analyzer.checkpoints.statefile import STATE_TYPES
from analyzer.manifest import Buffer, Parameter
from analyzer.model import StoredTensor
from analyzer.model.content import SAMPLES
from analyzer.model.dtypes import DType, is_exact
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.layouts import (
    PACKS_TRANSPOSE,
    class_use,
    find_uses,
    in_order,
    is_computed,
    is_turnable,
)
from analyzer.reconciliation.lines import MEANINGS, EntryLine, Line, ParameterLine, Piece
from analyzer.recover.restoring import NO_SCALE, Lost, Restorer, StateTensor
from analyzer.text import format_count


class Judge:
    """Judge of PyTorch tensors one by one; holds the indexes for that."""

    def __init__(self, result: Reconciliation) -> None:
        self.result = result
        self.restorer = Restorer(result.ledger)
        self.entries = {entry.tensor.key: entry for entry in result.ledger.entries}
        self.learned = {line.key: line.learned for line in result.entries}
        self.unread = {key: sentence for _, key, sentence in result.ledger.model.unread}
        self.doubtful = _next_to_absent_norms(result)

    def judge(self, tensor: Parameter | Buffer, parameter_line: ParameterLine) -> StateTensor | Lost:
        """Return a tensor that its place in the file gives back, or the reason why it is lost."""
        is_empty = parameter_line.line is Line.REMOVED_ZERO or tensor.numel == 0
        reason = None if is_empty else self._why_lost(tensor, parameter_line)
        if reason is None and tensor.dtype not in STATE_TYPES:
            reason = f"a safetensors file has no type {tensor.dtype.name}"
        if reason is not None:
            return Lost(tensor.name, tensor.shape, isinstance(tensor, Buffer), parameter_line.line, reason)
        return self._restorable(tensor, parameter_line, () if is_empty else parameter_line.pieces)

    def buffers(self) -> Iterator[StateTensor | Lost]:
        """Judge the persistent buffers; other buffers are not in a state dict."""
        found = defaultdict(list)
        for line in self.result.entries:
            if line.line in (Line.BUFFER, Line.DIFFERING) and line.parameter is not None:
                found[line.parameter].append(line)
        for buffer in self.result.manifest.buffers:
            if buffer.persistent:
                yield self._buffer(buffer, [line for name in buffer.names for line in found[name]])

    def _buffer(self, buffer: Buffer, lines: list[EntryLine]) -> StateTensor | Lost:
        if not lines:
            return Lost(buffer.name, buffer.shape, True, *self._why_absent(buffer))
        whole = [line for line in lines if line.piece is not None]
        # A buffer that equals PyTorch's is preferred to one that differs.
        line = min(whole or lines, key=lambda line: line.line is Line.DIFFERING)
        pieces = () if line.piece is None else (line.piece,)
        keys = (line.key, *(other.key for other in lines if other is not line))
        chain = (line.line,)
        return self.judge(
            buffer, ParameterLine(buffer.name, line.line, chain, keys, line.decided_by, None, pieces)
        )

    def _restorable(
        self, tensor: Parameter | Buffer, parameter_line: ParameterLine, pieces: tuple[Piece, ...]
    ) -> StateTensor:
        return StateTensor(
            name=tensor.name,
            shape=tensor.shape,
            dtype=tensor.dtype,
            tied=tensor.tied,
            is_buffer=isinstance(tensor, Buffer),
            line=parameter_line.line,
            chain=parameter_line.chain,
            entries=parameter_line.entries,
            decided_by=parameter_line.decided_by,
            max_abs_error=parameter_line.max_abs_error,
            pieces=pieces,
            loss=next(filter(None, (self._loss(piece, tensor.dtype) for piece in pieces)), None),
            is_guessed=any(self._is_guess(tensor, parameter_line, piece) for piece in pieces),
        )

    def _is_guess(self, tensor: Parameter | Buffer, parameter_line: ParameterLine, piece: Piece) -> bool:
        """Whether a square matrix may be transposed: a tool made it, and no compared values show its orientation."""
        entry = self.entries[piece.key]
        is_made = is_computed(entry, tensor) or self.restorer.encoding(entry.tensor) is not None
        return is_made and _is_square(tensor, piece) and not _shows_order(tensor, parameter_line)

    # reasons for lost tensors

    def _why_lost(self, tensor: Parameter | Buffer, parameter_line: ParameterLine) -> str | None:
        """Return why the file does not give the tensor back; None where it does."""
        pieces = parameter_line.pieces
        if parameter_line.decided_by.endswith(":turned"):
            return (
                f"{self.entries[parameter_line.entries[0]].tensor.name} is read transposed, unlike in PyTorch"
            )
        if (
            self.result.content == "sampled"
            and parameter_line.compared == "sampled"
            and parameter_line.entries
        ):
            return f"only {SAMPLES} of its elements were compared"
        lost = next((m.lost for line, m in MEANINGS.items() if m.lost and line in parameter_line.chain), None)
        if lost is not None:
            expression = self.result.expression(parameter_line)
            return lost if expression is None else f"{lost}: {expression}"
        if parameter_line.line is Line.DIFFERING and parameter_line.entries:
            stored = self.entries[parameter_line.entries[0]]
            is_turned = any([*piece.axes] != sorted(piece.axes) for piece in parameter_line.pieces)
            if (
                parameter_line.decided_by.startswith("name+")
                and is_computed(stored, tensor)
                and not is_turned
            ):
                return f"{stored.tensor.name} was computed from it, and has other values"
        if parameter_line.decided_by.startswith("structure:shape"):
            return "it is matched by its shape alone, and no values were compared"
        if not pieces:
            return self._why_without_pieces(tensor, parameter_line)
        for piece in pieces:
            if piece.computed is not None and piece.computed.undo is None:
                return f"stored as {piece.computed.rule}, which has no inverse"
            entry = self.entries[piece.key]
            encoded = self.restorer.encoding(entry.tensor)
            read = (entry.tensor, *(() if encoded is None else encoded.companions))
            unread = next((tensor for tensor in read if tensor.key in self.unread), None)
            if unread is not None:
                what = "the data" if unread.name == tensor.name else unread.name
                return f"{what} cannot be read: {self.unread[unread.key]}"
            if encoded is None and _is_code(tensor, entry.tensor) and not _is_compared(parameter_line):
                return f"{entry.tensor.name} has {NO_SCALE}"
            if not self.restorer.fits(piece):
                return f"{entry.tensor.name} has an unexpected size"
        if not _cover(tensor.shape, pieces):
            return "its pieces do not cover it"
        is_open = _is_square(tensor, pieces[0]) and not _shows_order(tensor, parameter_line)
        if parameter_line.line is not Line.DIFFERING and (is_open or not _is_compared(parameter_line)):
            return self._why_doubtful(tensor, parameter_line, pieces[0])
        return None

    def _why_without_pieces(self, tensor: Parameter | Buffer, parameter_line: ParameterLine) -> str:
        if any(MEANINGS[line].is_cut for line in parameter_line.chain):
            return self._why_rows_missing(tensor, parameter_line)
        if parameter_line.line is Line.DIFFERING:
            entry = self.entries[parameter_line.entries[0]]
            if parameter_line.decided_by == "none:unreadable":
                return f"{entry.tensor.name} cannot be read"
            if math.prod(self.restorer.shape(entry.tensor)) == tensor.numel:
                return f"{entry.tensor.name} differs, and its orientation is unknown"
            return f"{entry.tensor.name} has shape {_format_shape(self.restorer.shape(entry.tensor))} in the file"
        if parameter_line.entries:
            return f"computed from it, as {self.entries[parameter_line.entries[0]].tensor.name}"
        return self._not_found()

    def _why_rows_missing(self, tensor: Parameter | Buffer, parameter_line: ParameterLine) -> str:
        rows = tensor.numel // max(1, tensor.shape[-1])
        stored_rows = sum(self.learned[key] for key in parameter_line.entries) // max(1, tensor.shape[-1])
        if stored_rows >= rows:
            return "its rows are in the file in an unknown order"
        return f"the file has {format_count(stored_rows)} of its {format_count(rows)} rows"

    def _why_absent(self, buffer: Buffer) -> tuple[Line, str]:
        manifest = self.result.manifest
        lines = {parameter_line.name: parameter_line for parameter_line in self.result.parameters}
        for norm in manifest.batch_norms:
            scale = lines.get(norm.weight or norm.bias or "")
            is_folded = scale is not None and scale.line is Line.FOLDED_BATCHNORM
            if is_folded and {*buffer.names} & {norm.running_mean, norm.running_var}:
                return Line.FOLDED_BATCHNORM, MEANINGS[Line.FOLDED_BATCHNORM].lost
        if buffer.read is False and manifest.trace is not None:
            return Line.UNUSED, MEANINGS[Line.UNUSED].lost
        return Line.MISSING, self._not_found()

    def _not_found(self) -> str:
        compared = self.result.content != "none"
        return (
            "the file does not hold it"
            if compared
            else "no tensor in the file has its name, and no values were compared"
        )

    def _why_doubtful(
        self, tensor: Parameter | Buffer, parameter_line: ParameterLine, piece: Piece
    ) -> str | None:
        """Return why name and shape alone leave a tensor in doubt; None where they do not."""
        entry = self.entries[piece.key]
        is_used = self._is_used_alike(tensor, piece)
        if _is_square(tensor, piece) and (
            is_used is False or ("sampled" in parameter_line.decided_by and not is_used)
        ):
            return f"{entry.tensor.name} may be its transpose, and the compared values do not tell"
        is_code = self.restorer.encoding(entry.tensor) is not None
        if is_code and _is_square(tensor, piece) and not is_computed(entry, tensor) and is_turnable(entry):
            return f"{entry.tensor.name} may be its transpose, and the compared values do not tell"
        if _is_compared(parameter_line):
            return None
        order = [axis for axis in piece.axes if tensor.shape[axis] != 1]
        is_turned = order != sorted(order) or entry.read_by in PACKS_TRANSPOSE
        if is_computed(entry, tensor) and not is_turned:
            return f"{entry.tensor.name} was computed from it in an unknown way, and no values were compared"
        if module_of(tensor.name) in self.doubtful:
            return f"{entry.tensor.name} may have a BatchNorm folded in, and no values were compared"
        return None

    def _is_used_alike(self, tensor: Parameter | Buffer, piece: Piece) -> bool | None:
        """Whether the file's operators use this piece of a matrix in PyTorch's orientation; None if unknown.

        A matrix of a module of unknown class counts as Linear's: the result of a product lies along its first axis.
        """
        stored, modules = self.entries[piece.key].tensor, self.result.manifest.modules
        uses = find_uses(stored, self.restorer.shape(stored), self.result.ledger.wiring)
        answers = set()
        for use in in_order(uses, self.restorer.shape(stored), piece.shape, piece.axes):
            own = class_use(tensor, modules, is_lookup=use.summed is None)
            answers.add(use.result == 0 if own is None else use == own)
        return answers.pop() if len(answers) == 1 else None

    # reasons for lost bits

    def _loss(self, piece: Piece, dtype: DType) -> str | None:
        """Return why the file lacks some of the tensor's bits; None where it has all."""
        tensor = self.entries[piece.key].tensor
        encoded = self.restorer.encoding(tensor)
        if encoded is not None:
            bits = encoded.bits or tensor.dtype.bits
            scales = "block" if encoded.is_blocked else "channel" if encoded.scale.numel > 1 else "tensor"
            return f"codes of {bits} bits, with a scale for each {scales}"
        if piece.computed is not None and not self.restorer.is_undone_exactly(piece, dtype):
            return f"rounded after {piece.computed.rule}"
        if tensor.dtype is dtype:
            return None
        if not is_exact(dtype, tensor.dtype) and dtype is not DType.BOOL:
            return f"rounded to {tensor.dtype.name}"
        if not self.restorer.is_representable(piece, dtype):
            return f"{tensor.dtype.name} numbers that {dtype.name} cannot hold"
        return None


def _next_to_absent_norms(result: Reconciliation) -> frozenset[str]:
    """Return modules whose weight has as many channels as some BatchNorm without any tensor in the file."""
    manifest = result.manifest
    present = {
        parameter_line.name
        for parameter_line in result.parameters
        if parameter_line.entries and not parameter_line.decided_by.startswith("structure:shape")
    }
    present |= {
        line.parameter for line in result.entries if line.parameter is not None and line.line is Line.BUFFER
    }
    shapes = {name: tensor.shape for tensor in manifest.tensors for name in tensor.names}
    channels = set()
    for norm in manifest.batch_norms:
        names = {norm.weight, norm.bias, norm.running_mean, norm.running_var} - {None}
        if not names & present:
            channels |= {shapes[name][0] for name in names if name is not None and shapes[name]}
    weights = [p for p in manifest.parameters if len(p.shape) >= 2]
    return frozenset(
        module_of(p.name) for p in weights if channels & {*p.shape[: 1 if len(p.shape) == 2 else 2]}
    )


def _cover(shape: tuple[int, ...], pieces: tuple[Piece, ...]) -> bool:
    """Whether the pieces fill the tensor, each element once."""
    if len(pieces) == 1 and pieces[0].put is None:
        return pieces[0].shape == shape
    puts = [piece.put for piece in pieces if piece.put is not None]
    axes = {axis for axis, _, _ in puts}
    if len(puts) < len(pieces) or len(axes) != 1:
        return False
    axis = axes.pop()
    ends = [0]
    for (_, start, stop), piece in sorted(zip(puts, pieces, strict=True), key=lambda pair: pair[0]):
        if start != ends[-1] or piece.shape != (*shape[:axis], stop - start, *shape[axis + 1 :]):
            return False
        ends.append(stop)
    return ends[-1] == shape[axis]


def _is_code(tensor: Parameter | Buffer, stored: StoredTensor) -> bool:
    """Whether the file stores integer codes for a tensor that is floating-point in PyTorch."""
    return tensor.dtype.is_floating and stored.dtype in CODES and not stored.dtype.is_floating


def _is_compared(parameter_line: ParameterLine) -> bool:
    """Whether compared values decided, and not name and shape."""
    return not parameter_line.decided_by.endswith("shape") and parameter_line.line is not Line.DIFFERING


def _shows_order(tensor: Parameter | Buffer, parameter_line: ParameterLine) -> bool:
    """Whether compared values tell a square matrix from its transpose; samples do not, they may lie on its diagonal."""
    if not _is_compared(parameter_line) or "sampled" not in parameter_line.decided_by:
        return _is_compared(parameter_line)
    return False


def _is_square(tensor: Parameter | Buffer, piece: Piece) -> bool:
    dims = [dim for dim in tensor.shape if dim != 1]
    return len(dims) == 2 and dims[0] == dims[1] and piece.put is None


def _format_shape(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
