"""A module and a file's inputs -> the results of PyTorch on them: outputs, and values of its modules."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from analyzer.errors import ExportError, UsageError
from analyzer.model.content import Array
from exporter.alternatives import Alternative, ModuleAlternative, call_alternatives, module_alternatives
from exporter.classes import first_line
from exporter.inputs import ExampleInputs, example_inputs, forward_names
from exporter.quiet import quiet
from exporter.recording import (
    Call,
    Change,
    ExecutedCall,
    Labels,
    Recorder,
    RoundedNumbers,
    StoppedError,
    settings_of,
    tensors_in,
)
from exporter.sources import ResolvedModel

Dims = Sequence["int | str | None"]
_T = TypeVar("_T")

_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len")
LARGE = 64 << 20
"""Bytes of parameters from which a module computes in double precision piece by piece, without a full copy."""
_OFFSET = frozenset(
    {"roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "esm", "ibert", "data2vec-text"}
)
_MOST_LONG = 512
"""Most positions of the longest run."""
_MOST_COVERING = 4
"""Most runs that look up rows of tables that no other run has reached."""


class Attempt(Protocol):
    """Another computation in the place of one call or module."""

    @property
    def place(self) -> int | str:
        """Number of a call, or label of a module."""
        ...

    @property
    def index(self) -> int:
        """Index of the alternative."""
        ...

    @property
    def numbers(self) -> Sequence[float]:
        """Numbers in the file."""
        ...


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a submodule."""

    module: str
    """Path, as in `named_modules()`; with `#2` appended at a second call."""
    class_name: str
    first: int
    """Number of the first function call in it."""
    last: int
    made: int | None
    """Call that made its first tensor; None if unknown."""
    argument_calls: tuple[int, ...]
    """Calls that made its arguments."""
    numel: int
    settings: Mapping[str, object]
    """The module's numbers and strings: `eps`, `dim`, `negative_slope`, ..."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded forward pass."""

    modules: tuple[ModuleCall, ...]
    """Calls of submodules, in the order in which they end."""
    outputs: tuple[tuple[str, Array], ...]
    made: tuple[int, ...]
    """Calls that made the outputs; empty if one of them is unknown."""


def run_beside(resolved: ResolvedModel, inputs: Sequence[tuple[str, Dims]]) -> RunningModule:
    """Prepare a module to run on the inputs of a file.

    Args:
        resolved: a model with weights.
        inputs: name and dimensions of each graph input; a string is an axis that may vary.

    Raises:
        ExportError: there are no example inputs, or forward fails on them.
        UsageError: the graph's inputs are not those of forward.
    """
    made = example_inputs(resolved.model, resolved.config, resolved.example_inputs)
    return RunningModule(resolved.model, made, inputs)


class RunningModule:
    """PyTorch's side of a comparison: a module that runs on a file's inputs.

    Raises:
        UsageError: the graph's inputs are not those of forward.
    """

    def __init__(self, model: nn.Module, made: ExampleInputs, inputs: Sequence[tuple[str, Dims]]) -> None:
        self._model = model.eval().float()  # half precision, widened, holds the same values
        self._double: nn.Module | None = None
        size = sum(each.numel() * each.element_size() for each in model.parameters())
        self._is_large = size >= LARGE
        self._is_proven = False
        """Whether it has computed in double precision piece by piece."""
        self._half: nn.Module | None = None
        self._inputs = [(name, tuple(dims)) for name, dims in inputs]
        self._made = made
        self._leaves = list(_leaves(model, made))
        self._places = self._match()
        self._names = {place: name for name, place in self._places.items()}
        self._names_of = {self._leaves[place].name: name for name, place in self._places.items()}
        self.carrier = ""
        """Half-precision type of the file: numbers that it rounds to one are the same."""
        self._rounded: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self._varying: dict[str, list[torch.Tensor]] = {}
        """Values of parameters that change with each call of their module."""
        self._computed: Sequence[tuple[Array, Array]] = ()
        """Values computed from weights as the file has them, with their largest errors."""
        self._own_weights: dict[str, torch.Tensor] = {}
        """Weights before the file's were loaded, of those that may be the only source of such a value."""
        self._looked: dict[str, str] = {}
        """Name of an argument -> table whose rows it looks up."""
        self._reached: dict[str, npt.NDArray[np.bool_]] = {}
        """Path of a table -> whether a run has looked up each row."""

    def _match(self) -> dict[str, int]:
        """Return the index of forward's argument for each graph input: by name, else in order."""
        by_name = {leaf.name: at for at, leaf in enumerate(self._leaves)}
        if all(name in by_name for name, _ in self._inputs):
            return {name: by_name[name] for name, _ in self._inputs}
        if len(self._inputs) == len(self._leaves) and all(
            len(dims) == leaf.value.ndim for (_, dims), leaf in zip(self._inputs, self._leaves, strict=True)
        ):
            return {name: at for at, (name, _) in enumerate(self._inputs)}
        ours = ", ".join(name for name, _ in self._inputs) or "nothing"
        theirs = ", ".join(leaf.name for leaf in self._leaves) or "nothing"
        raise UsageError(
            f"the file takes {ours}, and forward takes {theirs}; neither names nor shapes match them; "
            "write a factory that returns (module, inputs) with the file's inputs"
        )

    def apart(self) -> RunningModule:
        """Return a copy with an independent module, which keeps the current values."""
        other = copy.copy(self)
        other._model, other._double, other._half = _copied(self._model), None, None
        other._looked, other._reached, other._computed, other._own_weights = {}, {}, (), {}
        return other

    def compute_with(self, values: Sequence[tuple[Array, Array]]) -> None:
        """Replace values that the module computes from its weights by the file's rounded ones.

        A file may hold both w and 1 - w, each rounded. What it holds of 1 - w is near that of the module's weights, and
        not near that of its own w. So the weights of now count, whatever is loaded later.

        Args:
            values: numbers, and the largest error of each; a tensor is replaced if all its elements are that near.
        """
        self._computed = values
        sizes = {number.size for number, _ in values if number.size >= _LEAST_COMPUTED}
        self._own_weights = {
            name: tensor.detach().clone()
            for name, tensor in self._model.named_parameters(remove_duplicate=False)
            if tensor.numel() in sizes and tensor.is_floating_point()
        }

    def _with_computed(self, model: nn.Module) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which a module computes with the file's rounded values."""
        if not self._computed:
            return contextlib.nullcontext()
        tensors = dict(model.named_parameters(remove_duplicate=False))
        own = [(tensors[name], value) for name, value in self._own_weights.items()]
        return _RoundedValues(self._computed, own)

    def vary(self, values: Mapping[str, Sequence[Array]]) -> None:
        """Give parameters the next of these values at each call of their module.

        A module that is called more often than there are values keeps the last.
        """
        self._varying = {
            name: [torch.from_numpy(np.array(each)) for each in some] for name, some in values.items()
        }

    @contextlib.contextmanager
    def _varied(self, model: nn.Module) -> Iterator[None]:
        """Give each call of a module its own parameter values while a forward pass runs."""
        modules, handles = dict(model.named_modules()), []
        kept = {}

        def hook(path: str) -> Any:
            names = [name for name in self._varying if name.rpartition(".")[0] == path]
            count = itertools.count()

            def begun(module: nn.Module, _: Any) -> None:
                number = next(count)
                for name in names:
                    values = self._varying[name]
                    parameter = getattr(module, name.rpartition(".")[2])
                    if number < len(values):
                        with torch._C.DisableTorchFunction():  # it is no call of the module's
                            parameter.data.copy_(values[number])

            return modules[path].register_forward_pre_hook(begun)

        for path in dict.fromkeys(name.rpartition(".")[0] for name in self._varying):
            for name in self._varying:
                if name.rpartition(".")[0] == path:
                    kept[name] = getattr(modules[path], name.rpartition(".")[2]).detach().clone()
            handles.append(hook(path))
        try:
            with torch.no_grad():
                yield
        finally:
            for handle in handles:
                handle.remove()
            for name, value in kept.items():
                path, _, leaf = name.rpartition(".")
                getattr(modules[path], leaf).data.copy_(value)

    def load(self, path: Path) -> None:
        """Load the tensors of a safetensors file into the module; other tensors of the module stay.

        A name that was tied to another, and has a separate tensor in the file, is no longer tied. If the file's
        variance of a batch normalization is 1, `eps` is subtracted from it, so that the module divides by 1.
        """
        from safetensors.torch import load_file

        found = load_file(path)
        modules = dict(self._model.named_modules())
        with torch.no_grad():
            for name, value in found.items():
                owner, _, leaf = name.rpartition(".")
                module = modules[owner]
                tensor = getattr(module, leaf)
                if not tensor.is_floating_point():
                    continue
                if leaf == "running_var" and bool((value == 1).all()):
                    value = value - float(getattr(module, "eps", 0.0))
                is_tied = any(
                    tensor is other
                    for other_name, other in self._model.named_parameters(remove_duplicate=False)
                    if other_name in found and other_name != name
                )
                if is_tied:
                    setattr(module, leaf, nn.Parameter(value.to(tensor.dtype), requires_grad=False))
                else:
                    tensor.data.copy_(value)
        self._double = self._half = None

    def feeds(self, seed: int, kind: str = "example") -> dict[str, Array]:
        """Return values for the graph's inputs, by name: the example's for seed 0, random ones for other seeds.

        Args:
            seed: of the random values; integers stay in the range of the example, masks stay unchanged.
            kind: `example`; `small`, a batch of one and shorter lengths; `single`, a batch and lengths of one; `long`,
                a batch of one and the greatest lengths: as far as the file's axes may vary; `whole`, the example with
                its integers unchanged, because some may be marks that a module counts.
        """
        generator = torch.Generator().manual_seed(seed)
        found = {}
        lengths = self._lengths(kind)
        lengths_by_dim = self._lengths_by_dim(lengths)
        for name, dims in self._inputs:
            leaf = self._leaves[self._places[name]]
            value = _fit(leaf.value, dims, _shared(leaf, dims, lengths_by_dim) | _own(leaf, lengths))
            is_drawn = seed and (kind != "whole" or value.is_floating_point())
            found[name] = _draw(value, generator).numpy() if is_drawn else value.numpy()
        return found

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of `feeds` that differ from the example."""
        sizes = {kind: self._lengths(kind) for kind in ("small", "single", "long")}
        varies = any(
            not isinstance(dim, int) and axis in self._leaves[self._places[name]].axes
            for name, dims in self._inputs
            for axis, dim in enumerate(dims)
        )
        return tuple(kind for kind, lengths in sizes.items() if lengths) if varies else ()

    def _lengths(self, kind: str) -> dict[str, int]:
        """Return the length of each axis that may vary."""
        if kind in ("example", "whole"):
            return {}
        axes: dict[str, list[tuple[int, _Leaf]]] = {}
        for leaf in self._leaves:
            for axis, name in leaf.axes.items():
                axes.setdefault(name, []).append((axis, leaf))
        found = {}
        for name, places in axes.items():
            have = min(leaf.value.shape[axis] for axis, leaf in places)
            if all(axis == 0 for axis, _ in places) or kind == "single":
                found[name] = 1
            elif kind == "small":
                found[name] = max(1, have - 4)
            elif any(not leaf.value.is_floating_point() for _, leaf in places):
                found[name] = self._longest(have)
        return found

    def _lengths_by_dim(self, lengths: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """Return the lengths of axes that share a varying axis's name in the file, by name and example's length."""
        found: dict[tuple[str, int], int] = {}
        for name, dims in self._inputs:
            leaf = self._leaves[self._places[name]]
            for axis, length in _own(leaf, lengths).items():
                if axis < len(dims) and isinstance(dim := dims[axis], str):
                    found.setdefault((dim, leaf.value.shape[axis]), length)
        return found

    def _longest(self, have: int) -> int:
        """Return the config's number of positions, or else four times the example's length, up to `_MOST_LONG`."""
        config = getattr(self._model, "config", None)
        settings = [getattr(config, key, None) for key in _POSITIONS]
        known = [each for each in settings if isinstance(each, int) and each > 0]
        most = min(known) if known else 4 * have
        if getattr(config, "model_type", "") in _OFFSET:
            most -= 2  # positions start behind the padding index
        return max(have, min(most, _MOST_LONG))

    def round_numbers(self, half: str, exact: Collection[float] = (), stored: Collection[float] = ()) -> None:
        """Round numbers in the module's code (an epsilon, a scale) as a file of half precision stores them.

        Args:
            half: `FLOAT16`, `BFLOAT16`; empty for the numbers as they are.
            exact: numbers in single precision that stay as they are.
            stored: numbers that the file has in half precision.
        """
        self._rounded = RoundedNumbers(half, exact, stored) if half else contextlib.nullcontext()

    def make_covering_inputs(self, at: int) -> dict[str, Array] | None:
        """Return inputs whose integers look up rows that no run has reached; None if there are none.

        Args:
            at: number of such inputs before this one.
        """
        found, is_new = self.feeds(0, "long" if "long" in self.kinds else "example"), False
        for name, path in self._looked.items():
            reached = self._reached.get(path)
            input_name = self._names_of.get(name)
            if reached is None or input_name is None or bool(reached.all()):
                continue
            missing = np.flatnonzero(~reached)
            value = found[input_name]
            take = missing[: value.size]
            found[input_name] = np.resize(take, value.shape).astype(value.dtype)
            is_new = bool(take.size)
        return found if is_new and at < _MOST_COVERING else None

    def rows(self) -> list[tuple[str, int, int]]:
        """Return the tables that were looked up: module, number of rows, and number of rows that a run has reached."""
        return [(path, each.size, int(each.sum())) for path, each in self._reached.items()]

    def run(self, feeds: Mapping[str, Array], precision: str = "single") -> list[tuple[str, Array]]:
        """Return the output tensors in order, each with the name that forward gives it, or "".

        Args:
            feeds: by the graph's names.
            precision: `single`, `double` or `half`.

        Raises:
            ExportError: forward fails.
        """
        watched = contextlib.nullcontext() if precision != "single" else _Lookups(self, feeds)

        def call() -> Any:
            model = self._at(precision)
            with self._with_computed(model):
                return self._call(model, feeds, precision)

        with watched:
            result = self._whole_if_refused(precision, call)
        return [
            (name, value.detach().float().numpy())
            if precision == "half" and value.is_floating_point()
            else (name, value.detach().numpy())
            for name, value in _tensors(result)
        ]

    def note_lookup(self, ids: torch.Tensor, table: torch.Tensor, feeds: Mapping[str, Array]) -> None:
        """Note which rows of a table were looked up, and by which input."""
        path = next(
            (
                path
                for path, module in self._model.named_modules()
                if isinstance(module, nn.Embedding) and module.weight is table
            ),
            None,
        )
        if path is None or ids.is_floating_point():
            return
        indices = ids.detach().numpy().reshape(-1)
        rows = self._reached.setdefault(path, np.zeros(table.shape[0], bool))
        rows[indices[(indices >= 0) & (indices < rows.size)]] = True
        for leaf, name in self._names_of.items():
            if feeds[name].dtype.kind == "i" and np.array_equal(feeds[name].reshape(-1), indices):
                self._looked[leaf] = path

    def record(
        self,
        feeds: Mapping[str, Array],
        report: Callable[[Call, Sequence[Array]], None],
        precision: str = "single",
        attempt: Attempt | None = None,
        until: int | None = None,
    ) -> Recording:
        """Run forward, and report every call of a PyTorch function with its result.

        Args:
            feeds: by the graph's names.
            report: receives each call, and its floats and numbers in the precision of a file; they may be overwritten
                later.
            precision: `single`, `double` or `half`.
            attempt: another computation in the place of one call or module.
            until: the last call of interest.

        Raises:
            ExportError: forward fails, or the attempt cannot be made.
        """
        if precision == "double" and self._is_large and not self._is_proven:
            self.run(feeds, precision)  # a refusal must come before any report
        model = self._at(precision)
        modules: list[ModuleCall] = []
        place = None if attempt is None else attempt.place
        change = None
        if attempt is not None and isinstance(place, int):
            change = Change(
                place,
                lambda executed: _nth(
                    self._call_alternatives(executed, attempt.numbers), attempt.index
                ).make(),
            )

        def report_values(call: Call, made: Sequence[torch.Tensor]) -> None:
            report(call, [_as_array(value, precision) for value in made if not value.is_complex()])

        recorder = Recorder(model, report_values, change, until)
        handles = self._hook(model, recorder, modules, attempt)
        outputs: list[tuple[str, Array]] = []
        made = set[int | None]()
        try:
            with contextlib.suppress(StoppedError), self._with_computed(model), recorder:
                result = self._call(model, feeds, precision)
                outputs = [(name, _as_array(value, precision)) for name, value in _tensors(result)]
                made |= {recorder.made_by(value) for _, value in _tensors(result)}
        finally:
            for handle in handles:
                handle.remove()
        known = tuple(each for each in made if each is not None)
        return Recording(tuple(modules), tuple(outputs), known if len(known) == len(made) else ())

    def _hook(
        self, model: nn.Module, recorder: Recorder, modules: list[ModuleCall], attempt: Attempt | None
    ) -> list[Any]:
        """Tell the recorder which module a call is in; and replace the result of one module."""
        labels, opened = Labels(), list[tuple[str, int, tuple[int, ...]]]()

        def begin(name: str) -> Callable[..., None]:
            def begun(module: nn.Module, args: Any, kwargs: Any) -> None:
                if recorder.is_silent:
                    return
                label = labels.of(name)
                sources = [*tensors_in(args), *tensors_in(kwargs)]
                parents = tuple(
                    dict.fromkeys(n for each in sources if (n := recorder.made_by(each)) is not None)
                )
                opened.append((label, recorder.count, parents))
                recorder.enter(label, module)

            return begun

        def end(module: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
            if recorder.is_silent:
                return None
            recorder.leave()
            label, first, parents = opened.pop()
            changed = None
            if attempt is not None and attempt.place == label:
                other = _nth(self._module_alternatives(module, label), attempt.index)
                changed = recorder.without_recording(lambda: other.make(module, args, kwargs, result))
            value = next((tensor for _, tensor in _tensors(result)), None)
            if changed is not None and value is not None:
                made_by = recorder.made_by(value)
                for tensor in tensors_in(changed):
                    recorder.tag(tensor, made_by)
            modules.append(
                ModuleCall(
                    module=label,
                    class_name=type(module).__name__,
                    first=first,
                    last=recorder.count - 1,
                    made=None if value is None else recorder.made_by(value),
                    argument_calls=parents,
                    numel=0 if value is None else value.numel(),
                    settings=settings_of(module),
                )
            )
            return changed

        handles = []
        for name, module in model.named_modules():
            if name:
                handles.append(module.register_forward_pre_hook(begin(name), with_kwargs=True))
                handles.append(module.register_forward_hook(end, with_kwargs=True))
        return handles

    def value(self, feeds: Mapping[str, Array], number: int) -> Array | None:
        """Return the first floating-point tensor that a call returns, complete; None if it returns none.

        Raises:
            ExportError: forward fails.
        """
        found: list[Array] = []

        def collect(call: Call, values: Sequence[Array]) -> None:
            if call.number == number:
                found.extend(each.copy() for each in values if each.dtype.kind == "f")

        self.record(feeds, collect, until=number)
        return found[0] if found else None

    def alternatives(
        self,
        feeds: Mapping[str, Array],
        place: int | str,
        numbers: Sequence[float],
        report: Callable[[int, tuple[str, str, str], Array | None], None],
    ) -> None:
        """Report the alternatives of a call or a module, with their values.

        Args:
            feeds: by the graph's names.
            place: the number of a call, or the label of a module's call.
            numbers: numbers in the file.
            report: receives each alternative's index; kind, PyTorch's side and alternative in words; its value, or
                None.

        Raises:
            ExportError: forward fails.
        """

        def report_value(index: int, each: Alternative | ModuleAlternative, make: Callable[[], Any]) -> None:
            value = None
            with contextlib.suppress(Exception):  # an alternative that does not fit is none
                value = next((v for v in tensors_in(make()) if v.is_floating_point()), None)
            array = None if value is None else _as_array(value, "single")
            report(index, (each.kind, each.expected, each.found), array)

        def look(executed: ExecutedCall) -> Any:
            for index, each in enumerate(self._call_alternatives(executed, numbers)):
                report_value(index, each, each.make)
            return executed.result

        change = Change(place, look) if isinstance(place, int) else None
        recorder = Recorder(self._model, lambda *_: None, change, place if isinstance(place, int) else None)
        labels, handles = Labels(), []

        def ended(name: str) -> Callable[..., None]:
            def end(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
                if recorder.is_silent or labels.of(name) != place:
                    return
                for index, each in enumerate(self._module_alternatives(module, str(place))):
                    call = functools.partial(each.make, module, args, kwargs, result)
                    report_value(index, each, functools.partial(recorder.without_recording, call))
                raise StoppedError

            return end

        if isinstance(place, str):
            name = place.partition("#")[0]
            module = dict(self._model.named_modules())[name]
            handles.append(module.register_forward_hook(ended(name), with_kwargs=True))
        try:
            with contextlib.suppress(StoppedError), self._with_computed(self._model), recorder:
                self._call(self._model, feeds)
        finally:
            for handle in handles:
                handle.remove()

    def _call_alternatives(self, executed: ExecutedCall, numbers: Sequence[float]) -> Iterator[Alternative]:
        return _fitting(
            call_alternatives(executed, numbers, dict(self._model.named_parameters()), self.carrier)
        )

    def _module_alternatives(self, module: nn.Module, label: str) -> Iterator[ModuleAlternative]:
        alike = {name: each for name, each in self._model.named_modules() if type(each) is type(module)}
        return _fitting(module_alternatives(module, label, alike))

    def _at(self, precision: str) -> nn.Module:
        if precision == "double" and not self._is_large:
            self._double = self._double or _copied(self._model).double()
            return self._double
        if precision == "half":
            self._half = self._half or _copied(self._model).half()
            return self._half
        return self._model

    def _whole_if_refused(self, precision: str, run: Callable[[], _T]) -> _T:
        """Run; if a large module cannot compute in double precision piece by piece, copy it and run again."""
        try:
            made = run()
            self._is_proven |= precision == "double"
            return made
        except ExportError:
            if precision != "double" or not self._is_large:
                raise
            self._is_large = False
            return run()

    def _call(self, model: nn.Module, feeds: Mapping[str, Array], precision: str = "single") -> Any:
        dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
        is_pieces = precision == "double" and self._is_large
        dtype = torch.float64 if is_pieces else dtype
        widened = Widened(model) if is_pieces else contextlib.nullcontext()
        perturbed = _PerturbedChoices() if precision == "double" else contextlib.nullcontext()
        args, kwargs = list(self._made.args), dict(self._made.kwargs)
        for at, leaf in enumerate(self._leaves):
            name = self._names.get(at)
            if name is not None:
                value = torch.from_numpy(np.array(feeds[name]))
                value = value.to(dtype) if value.is_floating_point() else value
                if leaf.position is None:
                    kwargs[leaf.name] = value
                else:
                    args[leaf.position] = value
            elif leaf.position is None:
                del kwargs[leaf.name]  # the file has no such input, so forward's default applies
        try:
            with torch.no_grad(), quiet(), _seeded(), self._rounded, self._varied(model), widened, perturbed:
                return model(*args, **kwargs)
        except StoppedError:
            raise
        except Exception as error:
            raise ExportError(f"{type(model).__name__}: forward fails: {first_line(error)}") from error


class _PerturbedChoices(TorchFunctionMode):
    """Moves values that a function chooses by, such as scores, by as much as rounding in single precision may.

    Rounding decides which of nearly equal values is the largest. Among equal values each library decides: PyTorch
    specifies nothing, ONNX takes the first. With the move, results that depend on such a choice differ between single
    and double precision, and this difference measures what rounding may cause.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (
            args
            and isinstance(args[0], torch.Tensor)
            and _returns_positions(getattr(func, "__name__", ""), args, kwargs)
        ):
            with torch._C.DisableTorchFunction():
                args = (_perturb(args[0]), *args[1:])
        return func(*args, **kwargs)


def _returns_positions(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function returns positions of values; `max` and `min` do so only with an axis."""
    if name in ("max", "min"):
        return "dim" in kwargs or (len(args) > 1 and isinstance(args[1], int))
    return name in _CHOOSING


_CHOOSING = frozenset({"argmax", "argmin", "argsort", "kthvalue", "mode", "sort", "topk"})
"""Functions that return positions of values, by their order."""

_PERTURBATION = 4 * torch.finfo(torch.float32).eps
"""Width of the interval, around 0, of the numbers added to scores, relative to their root mean square."""


def _perturb(scores: torch.Tensor) -> torch.Tensor:
    if not scores.is_floating_point() or scores.numel() < 2:
        return scores
    finite = torch.where(scores.isfinite(), scores, 0)
    noise = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.5
    return scores + (_PERTURBATION * finite.square().mean().sqrt() * noise).to(scores.dtype)


class _RoundedValues(TorchFunctionMode):
    """Replaces computed values by a file's rounded ones if they differ by no more than rounding.

    It is entered before the recorder, so the recorder sees the replacements.
    """

    def __init__(
        self, values: Sequence[tuple[Array, Array]], own: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> None:
        """Take the file's values with their largest errors, and weights that the file rounded with their own values."""
        super().__init__()
        self._values: dict[int, list[tuple[Array, Array]]] = {}
        for number, room in values:
            if number.size >= _LEAST_COMPUTED:
                self._values.setdefault(number.size, []).append((number, room))
        self._own = {id(tensor): (tensor, value) for tensor, value in own}
        """Tensors computed from such weights alone, and the results of their own values; by the tensor's identity."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        is_real = isinstance(made, torch.Tensor) and made.is_floating_point()
        near = self._values.get(made.numel()) if is_real else None
        if near is None:
            return made
        own = self._of_own_weights(func, args, kwargs or {}, made)
        put = next((put for each in near if (put := _rounded_as(own, made.dtype, *each)) is not None), made)
        if put is made and own is not made:
            self._own[id(made)] = (made, own)
        return put

    def _of_own_weights(self, func: Any, args: Any, kwargs: Any, made: torch.Tensor) -> torch.Tensor:
        """Return what a function gives of the weights' own values; what it made, where it reads anything else."""
        given = [each for each in _pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        if not given or any(id(each) not in self._own or each is made for each in given):
            return made
        args, kwargs = _pytree.tree_map_only(
            torch.Tensor, lambda each: self._own[id(each)][1].to(each.dtype), (args, kwargs)
        )
        own: torch.Tensor = func(*args, **kwargs)
        return own


_LEAST_COMPUTED = 16
"""Fewest elements of a value that its numbers identify."""


def _rounded_as(made: torch.Tensor, dtype: torch.dtype, numbers: Array, room: Array) -> torch.Tensor | None:
    """Return the numbers as a tensor of the computed one's shape; None if an element is off by more than its limit."""
    plain = made.detach().double().numpy()
    for one, other in ((numbers, room), (numbers.T, room.T)):
        if [dim for dim in one.shape if dim != 1] != [dim for dim in plain.shape if dim != 1]:
            continue
        wanted = one.reshape(plain.shape)
        allowed = np.multiply(other.reshape(plain.shape), 1.01) + np.abs(wanted) * 1e-6
        if bool((np.abs(plain - wanted) <= allowed).all()):
            return torch.from_numpy(np.ascontiguousarray(wanted)).to(dtype)
    return None


class _Lookups(TorchFunctionMode):
    """Reports lookups in embedding tables, whatever the arguments of a module's forward are."""

    def __init__(self, side: RunningModule, feeds: Mapping[str, Array]) -> None:
        super().__init__()
        self._side, self._feeds = side, feeds

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.embedding and len(args) > 1:
            self._side.note_lookup(args[0], args[1], self._feeds)
        return func(*args, **(kwargs or {}))


class Widened:
    """Keeps each module's parameters and buffers in double precision only while the module is called.

    A large module thus takes the memory of its numbers once, plus that of the modules at work.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._handles: list[Any] = []
        self._widened_tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """Tensors that are double now, and their previous data; by their identity."""
        self._open: list[list[int]] = []

    def __enter__(self) -> None:
        for module in self._model.modules():
            if module._parameters or module._buffers:
                self._handles.append(module.register_forward_pre_hook(self._begin))
                self._handles.append(module.register_forward_hook(self._end, always_call=True))

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        while self._open:
            self._end()

    def _begin(self, module: nn.Module, _: Any) -> None:
        some = []
        with torch._C.DisableTorchFunction():  # it is no call of the module's
            for each in (*module._parameters.values(), *module._buffers.values()):
                if each is not None and each.dtype == torch.float32 and id(each) not in self._widened_tensors:
                    self._widened_tensors[id(each)] = each, each.data
                    each.data = each.data.double()
                    some.append(id(each))
        self._open.append(some)

    def _end(self, *_: object) -> None:
        with torch._C.DisableTorchFunction():
            for number in self._open.pop():
                tensor, before = self._widened_tensors.pop(number)
                tensor.data = before


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One tensor argument of forward."""

    name: str
    value: torch.Tensor
    position: int | None
    """Position among the positional arguments; None for a keyword argument."""
    axes: Mapping[int, str]


def _copied(model: nn.Module) -> nn.Module:
    """Return an independent copy, also of a module that keeps computed tensors, such as an old weight norm's product.

    `deepcopy` refuses a tensor with a history (torch/_tensor.py).
    """
    known = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }
    return copy.deepcopy(model, known)


def _leaves(model: nn.Module, made: ExampleInputs) -> Iterator[_Leaf]:
    names = forward_names(model)
    positional = [
        (names[at] if at < len(names) else f"input_{at}", at, value) for at, value in enumerate(made.args)
    ]
    for name, at, value in [*positional, *((name, None, value) for name, value in made.kwargs.items())]:
        if isinstance(value, torch.Tensor):
            yield _Leaf(name, value.detach(), at, made.axes.get(name, {}))
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            raise UsageError(f"forward takes {type(value).__name__} as {name}, and verify feeds tensors only")


def _own(leaf: _Leaf, lengths: Mapping[str, int]) -> dict[int, int]:
    """Return the lengths of an input's varying axes."""
    return {axis: lengths[name] for axis, name in leaf.axes.items() if name in lengths}


def _shared(leaf: _Leaf, dims: Dims, lengths_by_dim: Mapping[tuple[str, int], int]) -> dict[int, int]:
    """Return the lengths of axes that the file names like a varying one of the same length in the example."""
    have = leaf.value.shape
    return {
        axis: lengths_by_dim[dim, have[axis]]
        for axis, dim in enumerate(dims)
        if isinstance(dim, str) and (dim, have[axis]) in lengths_by_dim
    }


def _fit(value: torch.Tensor, dims: Dims, sizes: Mapping[int, int]) -> torch.Tensor:
    """Return a tensor with the file's fixed sizes, and with the given sizes along axes that may vary."""
    for axis, dim in enumerate(dims):
        have = value.shape[axis]
        wanted = dim if isinstance(dim, int) else sizes.get(axis, have)
        if wanted < have:
            value = value.narrow(axis, 0, wanted)
        elif wanted > have:
            value = torch.cat([value] * -(-wanted // have), axis).narrow(axis, 0, wanted)
    return value.contiguous()


def _draw(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random values of the same kind: floats of the same spread, integers in the example's range; masks stay."""
    if value.is_floating_point():
        spread = float(value.std()) if value.numel() > 1 else 1.0
        drawn = torch.randn(value.shape, generator=generator) * (spread or 1.0) + float(value.mean())
        return drawn.to(value.dtype)
    if value.dtype == torch.bool or value.numel() < 2 or int(value.max()) - int(value.min()) < 2:
        return value
    low, high = int(value.min()), int(value.max())
    return torch.randint(low, high + 1, value.shape, generator=generator).to(value.dtype)


def _tensors(result: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a module's result in order, each with its key in a mapping, or ""."""
    if isinstance(result, torch.Tensor):
        yield "", result
        return
    if isinstance(result, Mapping):
        for key, value in result.items():
            for at, (_, tensor) in enumerate(_tensors(value)):
                yield (str(key) if not at else ""), tensor
        return
    parts = [getattr(result, name) for name in _CACHES if hasattr(result, name)] or getattr(
        result, "layers", None
    )
    if isinstance(parts, list) and not isinstance(
        result, torch.nn.Module
    ):  # a cache of transformers is no pytree
        for part in parts:
            keys_and_values = [getattr(part, name, None) for name in ("keys", "values")]
            tensors = [each for each in keys_and_values if isinstance(each, torch.Tensor)]
            yield from (("", each) for each in tensors) if tensors else _tensors(part)
        return
    try:
        leaves = _pytree.tree_leaves(result)
    except Exception:  # noqa: BLE001  a class that pytree does not know has no tensors
        return
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            yield "", leaf


_CACHES = ("self_attention_cache", "cross_attention_cache")
"""Parts of an encoder-decoder's cache."""


def _fitting(items: Iterator[_T]) -> Iterator[_T]:
    """Yield alternatives until one cannot be made: arguments of an unexpected form end the list."""
    with contextlib.suppress(Exception):
        yield from items


def _nth(items: Iterator[_T], index: int) -> _T:
    return next(itertools.islice(items, index, None))


def _as_array(value: torch.Tensor, precision: str) -> Array:
    """Return a tensor as a numpy array, with half precision widened to single."""
    value = value.detach()
    if value.dtype in (torch.float16, torch.bfloat16):
        value = value.float()
    found: Array = value.numpy()
    return found
