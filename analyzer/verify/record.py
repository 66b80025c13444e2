"""The nouns of a verification: outputs, inner values, inputs, and what each comparison says."""

from __future__ import annotations

import enum

from analyzer.records import Frozen
from analyzer.timing.request import Optimization


class Verdict(enum.StrEnum):
    """What a comparison of two values says."""

    SAME = "same"
    """No further apart than rounding is."""
    DIFFERS = "differs"
    NOT_COMPARED = "not-compared"
    """Of another shape or type, not made by one side, or not a number."""


class Agreement(Frozen):
    """How far apart two values are, the worst of all runs."""

    max_abs_error: float | None
    """Largest difference, in the values' own unit; None where they were not compared."""
    signal_to_error_db: float | None
    """Power of the value over that of the difference, in dB; None where nothing differs, or nothing was compared."""
    noise_db: float | None
    """The same of rounding: what other sums of the same file differ by, in dB; None where they do not."""
    verdict: Verdict


class Pairing(Frozen):
    """A value of both sides."""

    name: str
    """Of MODEL's side."""
    value: str
    """Of the other side."""
    node: str
    """The node that makes it, in MODEL."""
    op_type: str
    group: str | None
    """The subgraph of that node; None where nothing tells."""
    agreement: Agreement


class First(Frozen):
    """Where the two part."""

    module: str | None
    node: str
    reason: str


class Difference(Frozen):
    """What two nodes that make one value differ in."""

    module: str | None
    parameter: str | None
    """The stored tensor that it is about; None where it is about none."""
    node: str
    kind: str
    expected: str
    """What the other side has."""
    found: str
    """What MODEL has."""
    reads: tuple[str, ...] = ()
    """Stored tensors that are read there, where PyTorch's program told of it."""


class Fed(Frozen):
    """One input of one run."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    seed: int
    """Of the generator that its values are drawn from."""
    file: str | None = None
    """What it was read from instead; None where it was made."""


class LayerCost(Frozen):
    """What rounding one module alone does to the outputs."""

    module: str
    signal_to_error_db: float | None
    """Of the output that is off the most, weights and quantizers together; None where it costs nothing."""
    weights_db: float | None
    """The same of the module's weights alone; None where they cost nothing, or nobody knows."""
    codes_db: float | None
    """The same of its quantizers of activations alone."""
    quantizers: int
    """How many these are."""
    nbytes: int
    """Bytes of its weights, as the file stores them."""
    float_nbytes: int
    """Bytes of the same in single precision."""


class KeptFloat(Frozen):
    """What it would give to leave modules in float."""

    modules: tuple[str, ...]
    more_nbytes: int
    """Bytes that the file would have more."""
    before_db: float | None
    """Signal to error of the output that is off the most, all modules rounded, with the errors of weights and of
    quantizers added up."""
    signal_to_error_db: float | None
    """The same with these in float and all others rounded; None where nothing is off then."""


class Costs(Frozen):
    """What rounding does to the outputs, on the first inputs. All numbers are of the output that is off the most."""

    weights_db: float | None
    """Signal to error of PyTorch with the weights of the file; None where nobody knows, or nothing is off."""
    codes_db: float | None
    """The same of the file as it stands, beside its float twin."""
    layers: tuple[LayerCost, ...]
    """Modules that cost anything, the dearest first."""
    kept: KeptFloat | None
    """The three dearest left in float; None where nobody can say."""
    unmeasured: int
    """Modules for which there was no time."""


class Executed(Frozen):
    """One of two ways in which one file ran."""

    optimization: Optimization
    """How far onnxruntime could rewrite the graph."""
    provider: str
    """The execution provider, as `--provider` names it."""
    nodes: int | None
    """Nodes of the graph that ran; None where they are those of the file, or onnxruntime does not tell."""


class VerifyReport(Frozen):
    """`verify`: whether two files compute the same."""

    path: str
    against: str
    outputs: tuple[Pairing, ...]
    values: tuple[Pairing, ...]
    """Inner values of both, in the order of MODEL."""
    first: First | None
    """None where the outputs are the same, or no inner value tells."""
    checked: int
    """Nodes of one name in both, in nodes, that were compared without running."""
    differences: tuple[Difference, ...]
    inputs: tuple[Fed, ...]
    uncovered: tuple[str, ...]
    """What these runs did not try, in sentences."""
    costs: Costs | None = None
    """None where nothing is rounded, or where the outputs are not the same."""
    drift_db: float | None = None
    """Signal to error of the output that is off the most: the file as it stands, beside PyTorch with its own weights;
    infinite where nothing is off, None where nobody knows, or nobody asked."""
    unfit: tuple[str, ...] = ()
    """Sizes that the file declares and the other side takes, each with why onnxruntime does not run the file."""
    executions: tuple[Executed, Executed] | None = None
    """How MODEL and the other side ran, where both are one file; else None."""
    stamp: str | None = None

    @property
    def same(self) -> bool:
        """Whether every output was compared, and none differs."""
        return bool(self.outputs) and all(each.agreement.verdict is Verdict.SAME for each in self.outputs)

    @property
    def is_answered(self) -> bool:
        """Whether it is the same, or differs: where an output could not be compared and none differs, nobody knows."""
        return self.same or any(each.agreement.verdict is Verdict.DIFFERS for each in self.outputs)
