"""File and PyTorch's calls -> account of every operator, without running anything.

Both are computed over the field, at the sizes of the export and at others. A node with a value of the program is the
same, whatever its form. Two operators differ for sure if they compute different real numbers from the same operands.
Operators that this cannot settle are named, and never counted as the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from analyzer.errors import UsageError
from analyzer.manifest import Calls
from analyzer.model import Node
from analyzer.reconciliation import Line, Reconciliation
from analyzer.records import Mutable, field
from analyzer.text import format_many
from analyzer.verify.algebra.changes import Change, find_changes, is_near
from analyzer.verify.algebra.field import Numbers
from analyzer.verify.algebra.programs import values_of
from analyzer.verify.algebra.sides import Drawing, State, draw_programs, left_out, seeds_of
from analyzer.verify.algebra.values import Factored, Field, is_known
from analyzer.verify.algebra.watched import Print, print_of
from analyzer.verify.record import LACKING, Agreement, First, Pairing, Verdict, VerifyReport
from analyzer.verify.verify import local_path, name_node

_DRAWINGS = 3
"""Number of drawings that must agree."""
_MOST_LISTED = 8
NO_SIZE = "decisions by sizes that PyTorch does not make"
QUOTIENTS = "divisions that PyTorch does not do, such as by a sum without its epsilon"
"""Texts for values that the algebra leaves open."""
_UNJUDGED = "in another form"
_KINDS = ("same", "decomposed", "fused", "folded", "moved", "changed", "missing", "added", _UNJUDGED)


def account_program(
    result: Reconciliation, file: str, against: str, stamp: str | None = None
) -> VerifyReport:
    """Account for every operator of a file against PyTorch's calls, without running anything.

    Args:
        result: the reconciliation of the file with a manifest that has the calls of PyTorch's program.
        file: the name that it was exported under, where the manifest has several programs.
        against: the name of PyTorch's side.
        stamp: the time of the report, as for `--stamp`.

    Raises:
        UsageError: the file is not one local file, the program was not recorded, or takes other inputs.
    """
    local_path(result.ledger)
    calls = _calls_of(result, file, against)
    numbers = Numbers()
    model = result.ledger.model
    dropped = [line.name for line in result.parameters if line.line is Line.REMOVED_ZERO]
    drawings = draw_programs(result.manifest, calls, seeds_of(result, _DRAWINGS), numbers, model, dropped)
    states = [State(result, calls, drawing) for drawing in drawings]
    first = next((state for state in states if not state.is_same), states[0])
    changes, after = find_changes(first)
    account = _Account(first, after, changes, states)
    account.count()
    return account.report(against, stamp)


def _calls_of(result: Reconciliation, file: str, against: str) -> Calls:
    """Return the calls of the program from which a file was exported."""
    programs = result.manifest.calls
    matching = [calls for calls in programs if calls.file == file] or list(programs)
    if len(matching) != 1:
        why = (
            f"it has the programs of {', '.join(calls.file for calls in programs)}"
            if matching
            else "export again"
        )
        raise UsageError(
            f"--static: {against} has no calls of PyTorch for {file}: {why}; or leave --static out"
        )
    if matching[0].note or not matching[0].calls:
        raise UsageError(
            f"--static: {against} has no calls of PyTorch: {matching[0].note}; leave --static out"
        )
    return matching[0]


class _Account(Mutable):
    before: State
    """State of the drawing in which something differs."""
    after: State
    """State with all values substituted that could be found."""
    changes: list[Change]
    states: Sequence[State]
    counts: Counter[str] = field(default_factory=Counter)
    unjudged: list[str] = field(default_factory=list)

    @property
    def decided_by(self) -> list[str]:
        """Integer inputs whose numbers the program needs to be computed."""
        return [name for name, value in self.states[0].drawing.program.inputs.items() if is_known(value)]

    # every operator

    def count(self) -> None:
        """Classify every node and every call."""
        state = self.after
        changed = {change.node.position: change for change in self.changes}
        whole: set[Print] = set()
        for node in state.graph.nodes:
            if node.op_type == "Constant":
                continue
            key = state.prints.get((node.position, 0))
            if key is not None:
                whole.add(key)
            if node.position in changed:
                self._count_changed(changed[node.position])
            elif node.position not in state.settled or node.position in state.file.unsupported:
                why = next((state.file.why[name] for name in node.outputs if name in state.file.why), "")
                self._leave(f"{name_node(node)} ({why})" if why else name_node(node))
            else:
                self.counts[self._kind(node, key)] += 1
        self._count_calls(state.drawing, whole)

    def _leave(self, name: str) -> None:
        self.counts[_UNJUDGED] += 1
        self.unjudged.append(name)

    def _count_changed(self, change: Change) -> None:
        if change.verdict is Verdict.DIFFERS:
            self.counts["added" if change.origin is None else "changed"] += 1
        else:
            self._leave(name_node(change.node))

    def _kind(self, node: Node, key: Print | None) -> str:
        state = self.after
        if key is None:
            return "same"  # sizes, masks and positions, computed as they are, or weights
        origin = state.drawing.origins.get(key)
        if origin is None or origin.step is not None:
            return "decomposed"
        scope = state.ledger.node_scopes.get(node.place)
        modules = state.drawing.modules[key]
        is_moved = scope is not None and not any(is_near(scope, module) for module in modules)
        return "moved" if is_moved else "same"

    def _count_calls(self, drawing: Drawing, whole: set[Print]) -> None:
        """Classify the program's calls that no node stands for."""
        state, program = self.after, drawing.program
        read: dict[str, list[str]] = {}
        for call in program.calls.calls:
            for name in call.read("value"):
                read.setdefault(name, []).append(call.name)
        done: set[str] = set(program.calls.outputs)
        for call in reversed(program.calls.calls):
            values = [*values_of(program.values.get(call.name))]
            prints = [key for value in values if (key := print_of(value)) is not None]
            if call.name in program.why:
                self._leave(f"{call.operator} of {call.module or 'the model'} ({program.why[call.name]})")
            elif not any(isinstance(value, Field) for value in values) or any(key in whole for key in prints):
                done.add(call.name)
                self.counts["folded"] += any(isinstance(value, Factored) for value in values)
            elif any(key in state.found for key in prints) or (
                call.name in read and all(name in done for name in read[call.name])
            ):
                done.add(call.name)
                self.counts["fused"] += 1
            elif call.name in read:
                self.counts["missing"] += 1

    # report

    def report(self, against: str, stamp: str | None) -> VerifyReport:
        """Return the report."""
        outputs = tuple(self._outputs())
        is_different = any(each.agreement.verdict is Verdict.DIFFERS for each in outputs)
        sure = next((each.difference for each in self.changes if each.verdict is Verdict.DIFFERS), None)
        first = None
        if sure is not None and is_different:
            first = First(
                sure.module, sure.node, f"{sure.node}: {sure.found}, and PyTorch has {sure.expected}"
            )
        return VerifyReport(
            path=str(self.before.ledger.model.path),
            against=against,
            outputs=outputs,
            values=(),
            first=first,
            checked=sum(self.counts.values()),
            differences=tuple(change.difference for change in self.changes),
            inputs=(),
            uncovered=tuple(self._describe_uncovered()),
            stamp=stamp,
        )

    def _outputs(self) -> Iterator[Pairing]:
        for name, theirs in self.before.pairs:
            verdict = Verdict.NOT_COMPARED
            is_doubtful = any(theirs in state.drawing.program.doubtful for state in self.states)
            if not is_doubtful and all(name in state.same_outputs for state in self.states):
                verdict = Verdict.NOT_COMPARED if self.decided_by else Verdict.SAME
            elif (is_reached := self._is_reached(name)) or self.after.drawing.unsupported_prints:
                leading = [change for change in self.changes if self._leads(change.node, name)]
                sure = [change for change in leading if change.verdict is Verdict.DIFFERS]
                if any(is_reached or change.is_before_stop for change in sure):
                    verdict = Verdict.DIFFERS
            node = self.before.makers.get(name)
            agreement = Agreement(None, None, None, verdict)
            if node is None:
                yield Pairing(name, theirs, "", "", None, agreement)
            else:
                scope = self.before.ledger.node_scopes.get(node.place)
                yield Pairing(name, theirs, name_node(node), node.op_type, scope, agreement)
        alone = Agreement(None, None, None, Verdict.NOT_COMPARED)
        paired = self.before.pairs
        for name in self.before.graph.outputs:
            if name not in {mine for mine, _ in paired}:
                yield Pairing(name, "", "", "", None, alone)
        for name in () if self.has_first_outputs else self.before.calls.outputs:
            if name not in {theirs for _, theirs in paired}:
                yield Pairing("", name, "", "", None, alone)

    @property
    def has_first_outputs(self) -> bool:
        """Whether the file's outputs are the program's first ones, in order: a run leaves out those behind them.

        If it lacks one before another, a run may take an output for the lacking one, by its shape.
        """
        paired = [theirs for _, theirs in self.before.pairs]
        return bool(paired) and paired == [*self.before.calls.outputs[: len(paired)]]

    def _is_reached(self, name: str) -> bool:
        """Whether an output is the program's after all substitutions, or equal only since then, whatever it hides."""
        is_corrected = name in self.after.equal_outputs and name not in self.before.equal_outputs
        return name in self.after.same_outputs or is_corrected

    def _leads(self, start: Node, output: str) -> bool:
        """Whether an output depends on a node."""
        pending, seen = [output], set[int]()
        while pending:
            node = self.before.makers.get(pending.pop())
            if node is None or node.position in seen:
                continue
            if node.position == start.position:
                return True
            seen.add(node.position)
            pending += self.before.node_names(node)
        return False

    def _describe_uncovered(self) -> Iterator[str]:
        summary = ", ".join(f"{self.counts[kind]:,} {kind}" for kind in _KINDS)
        yield f"nothing was run; operators: {summary}"
        if self.unjudged:
            names = ", ".join(self.unjudged[:_MOST_LISTED])
            rest = (
                f", and {len(self.unjudged) - _MOST_LISTED:,} more"
                if len(self.unjudged) > _MOST_LISTED
                else ""
            )
            count = format_many(len(self.unjudged), "operator")
            yield f"no verdict on {count}, which PyTorch may compute in another form: {names}{rest}"
        sizes = [
            ", ".join(
                f"{name} {'x'.join(map(str, value.shape))}"
                for name, value in state.drawing.program.inputs.items()
            )
            for state in self.states
        ]
        yield f"not proven: sizes other than {' and '.join(dict.fromkeys(sizes))}"
        left = left_out(self.before.graph, self.before.calls)
        decided = [name for name in self.decided_by if name not in left]
        if decided:
            yield f"not proven: numbers of {', '.join(decided)} other than the example's, by which PyTorch decides"
        if left:
            yield f"not proven: inputs that the file lacks, unless masks are 1 and all others 0: {', '.join(left)}"
        lacking = len(self.before.calls.outputs) - len(self.before.pairs) if self.has_first_outputs else 0
        if lacking:
            yield f"not proven: {LACKING}: {lacking:,}"
        quotients = {name for state in self.states for name in state.quotients}
        hidden = {name for state in self.states for name in state.hidden}
        for text, found in ((NO_SIZE, hidden - quotients), (QUOTIENTS, quotients)):
            if found:
                yield f"not proven: {text}: {', '.join(sorted(found)[:_MOST_LISTED])}"
        if self.before.has_codes:
            yield "not proven: the rounding of weights to codes"
        yield "not proven: rounding, overflow, division by zero, fully masked rows of attention"
