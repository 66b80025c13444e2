"""A module and the inputs that a file takes -> what PyTorch computes of them: outputs, and values of its modules."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree

from analyzer.content import Array
from analyzer.errors import ExportError, UsageError
from exporter.classes import first_line
from exporter.inputs import ExampleInputs, example_inputs, forward_names
from exporter.quiet import quiet
from exporter.sources import ResolvedModel

Dims = Sequence["int | str | None"]


@dataclass(frozen=True, slots=True)
class Boundary:
    """What one call of a submodule gives."""

    module: str
    """Its path, as in `named_modules()`; with `#2` behind it at a second call."""
    class_name: str
    shape: tuple[int, ...]
    settings: Mapping[str, object]
    """The module's own numbers and words: `eps`, `dim`, `negative_slope`, ..."""

    @property
    def numel(self) -> int:
        """Elements of its first tensor."""
        return int(np.prod(self.shape, dtype=np.int64))


def run_beside(resolved: ResolvedModel, inputs: Sequence[tuple[str, Dims]]) -> RunningModule:
    """The module, ready to be fed what a file's inputs are fed.

    Args:
        resolved: a model with weights.
        inputs: of the graph, name and dimensions each; a text is an axis that may vary.

    Raises:
        ExportError: there are no example inputs, or forward fails on them.
        UsageError: the graph's inputs are not those of forward.
    """
    made = example_inputs(resolved.model, resolved.config, resolved.example_inputs)
    return RunningModule(resolved.model, made, inputs)


class RunningModule:
    """PyTorch's side of a run.

    Raises:
        UsageError: the graph's inputs are not those of forward.
    """

    def __init__(self, model: nn.Module, made: ExampleInputs, inputs: Sequence[tuple[str, Dims]]) -> None:
        self._model = model.eval().float()  # half precision, widened, holds the same values
        self._double: nn.Module | None = None
        self._half: nn.Module | None = None
        self._inputs = [(name, tuple(dims)) for name, dims in inputs]
        self._made = made
        self._leaves = list(_leaves(model, made))
        self._places = self._match()
        self._names = {place: name for name, place in self._places.items()}

    def _match(self) -> dict[str, int]:
        """Which leaf of the arguments each input of the graph is: by name, else in their order."""
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
            f"the file takes {ours}, and forward was given {theirs}: which is which cannot be told; "
            "write a factory that returns (module, inputs) with the file's inputs"
        )

    def load(self, path: Path) -> None:
        """Give the module the tensors of a safetensors file; what that lacks stays as it is."""
        from safetensors.torch import load_file

        with quiet():
            self._model.load_state_dict(load_file(path), strict=False)
        self._double = self._half = None

    def feeds(self, seed: int, *, is_small: bool = False) -> dict[str, Array]:
        """Values for the graph's inputs, by name: the example's own for seed 0, drawn anew for others.

        Args:
            seed: of what is drawn; whole numbers stay within those of the example, masks stay as they are.
            is_small: a batch of one, and shorter lengths, where the file's axes may vary.
        """
        generator = torch.Generator().manual_seed(seed)
        found = {}
        for name, dims in self._inputs:
            leaf = self._leaves[self._places[name]]
            value = _fit(leaf.value, dims, small=leaf.axes if is_small else {})
            found[name] = _draw(value, generator).numpy() if seed else value.numpy()
        return found

    def run(self, feeds: Mapping[str, Array], precision: str = "single") -> list[tuple[str, Array]]:
        """The tensors of the outputs in their order, by the names that forward gives them, or "".

        Args:
            feeds: by the graph's names.
            precision: `single`, `double` or `half`.

        Raises:
            ExportError: forward fails.
        """
        model = self._at(precision)
        given = self._call(model, feeds)
        return [
            (name, value.detach().float().numpy())
            if precision == "half" and value.is_floating_point()
            else (name, value.detach().numpy())
            for name, value in _tensors(given)
        ]

    def boundaries(self, feeds: Mapping[str, Array]) -> list[Boundary]:
        """Every call of a submodule, in the order in which they end, without values."""
        found: list[Boundary] = []
        self._watch(self._model, feeds, lambda boundary, _: found.append(boundary))
        return found

    def values(
        self, feeds: Mapping[str, Array], wanted: Sequence[str], precision: str = "single"
    ) -> dict[str, Array]:
        """What these calls give, by their names in `boundaries`."""
        found: dict[str, Array] = {}
        names = set(wanted)

        def keep(boundary: Boundary, value: torch.Tensor) -> None:
            if boundary.module in names:
                kept = value.detach()
                found[boundary.module] = (kept.float() if precision == "half" else kept.clone()).numpy()

        self._watch(self._at(precision), feeds, keep)
        return found

    def _watch(
        self, model: nn.Module, feeds: Mapping[str, Array], told: Callable[[Boundary, torch.Tensor], None]
    ) -> None:
        calls: dict[str, int] = {}
        handles = []

        def hook(name: str) -> Callable[..., None]:
            def ended(module: nn.Module, _: object, given: object) -> None:
                value = next((tensor for _, tensor in _tensors(given)), None)
                if value is None or value.is_complex():
                    return
                calls[name] = calls.get(name, 0) + 1
                label = name if calls[name] == 1 else f"{name}#{calls[name]}"
                told(Boundary(label, type(module).__name__, tuple(value.shape), _settings(module)), value)

            return ended

        try:
            for name, module in model.named_modules():
                if name:
                    handles.append(module.register_forward_hook(hook(name)))
            self._call(model, feeds)
        finally:
            for handle in handles:
                handle.remove()

    def _at(self, precision: str) -> nn.Module:
        if precision == "double":
            self._double = self._double or copy.deepcopy(self._model).double()
            return self._double
        if precision == "half":
            self._half = self._half or copy.deepcopy(self._model).half()
            return self._half
        return self._model

    def _call(self, model: nn.Module, feeds: Mapping[str, Array]) -> Any:
        dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
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
                del kwargs[leaf.name]  # the file does without it, so it is left to forward
        try:
            with torch.no_grad(), quiet(), _seeded():
                return model(*args, **kwargs)
        except Exception as error:
            raise ExportError(f"{type(model).__name__}: forward fails: {first_line(error)}") from error


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One tensor that forward takes."""

    name: str
    value: torch.Tensor
    position: int | None
    """Among the positional arguments; None of a keyword."""
    axes: Mapping[int, str]


def _leaves(model: nn.Module, made: ExampleInputs) -> Iterator[_Leaf]:
    names = forward_names(model)
    named = [
        (names[at] if at < len(names) else f"input_{at}", at, value) for at, value in enumerate(made.args)
    ]
    for name, at, value in [*named, *((name, None, value) for name, value in made.kwargs.items())]:
        if isinstance(value, torch.Tensor):
            yield _Leaf(name, value.detach(), at, made.axes.get(name, {}))
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            raise UsageError(f"forward takes {type(value).__name__} as {name}, and verify feeds tensors only")


def _fit(value: torch.Tensor, dims: Dims, small: Mapping[int, str]) -> torch.Tensor:
    """A tensor as large as the file's fixed sizes, and smaller along the axes that may vary."""
    for axis, dim in enumerate(dims):
        have = value.shape[axis]
        wanted = dim if isinstance(dim, int) else have
        if not isinstance(dim, int) and axis in small:
            wanted = 1 if not axis else max(1, have - 4)
        if wanted < have:
            value = value.narrow(axis, 0, wanted)
        elif wanted > have:
            value = torch.cat([value] * -(-wanted // have), axis).narrow(axis, 0, wanted)
    return value.contiguous()


def _draw(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Other values of the same kind: floats of the same spread, whole numbers between the example's; masks stay."""
    if value.is_floating_point():
        spread = float(value.std()) if value.numel() > 1 else 1.0
        drawn = torch.randn(value.shape, generator=generator) * (spread or 1.0) + float(value.mean())
        return drawn.to(value.dtype)
    if value.dtype == torch.bool or value.numel() < 2 or int(value.max()) - int(value.min()) < 2:
        return value
    low, high = int(value.min()), int(value.max())
    return torch.randint(low, high + 1, value.shape, generator=generator).to(value.dtype)


def _tensors(given: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of what a module gives, by the key that an output of several has, in their order."""
    if isinstance(given, torch.Tensor):
        yield "", given
        return
    if isinstance(given, Mapping):
        for key, value in given.items():
            for at, (_, tensor) in enumerate(_tensors(value)):
                yield (str(key) if not at else ""), tensor
        return
    try:
        leaves = _pytree.tree_leaves(given)
    except Exception:  # noqa: BLE001  a class that the library does not know has no tensors to give
        return
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            yield "", leaf


def _settings(module: nn.Module) -> dict[str, object]:
    """What the class was told, as far as it is numbers and words."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training" and isinstance(value, (bool, int, float, str))
    }
