"""Nouns of a verification: outputs, inner values, inputs, and the verdict of each comparison."""

from __future__ import annotations

import enum

from analyzer.records import Frozen
from analyzer.timing.request import Optimization


class Verdict(enum.StrEnum):
    """Result of comparing two values."""

    SAME = "same"
    """Values that differ by no more than rounding."""
    DIFFERS = "differs"
    NOT_COMPARED = "not-compared"
    """Values of another shape or type, missing on one side, or not numeric."""


class Agreement(Frozen):
    """Distance of two values, in the worst of all runs."""

    max_abs_error: float | None
    """Largest difference, in the values' own unit; None where they were not compared."""
    signal_to_error_db: float | None
    """Power of the value over that of the difference, in dB; None where nothing differs, or nothing was compared."""
    noise_db: float | None
    """Power of the value over that of rounding, in dB: other orders of the same sums differ by so much; None if they
    do not."""
    verdict: Verdict


class Pairing(Frozen):
    """One value, on both sides."""

    name: str
    """Name on MODEL's side."""
    value: str
    """Name on the other side."""
    node: str
    """Node of MODEL that makes the value."""
    op_type: str
    group: str | None
    """Subgraph of that node; None where unknown."""
    agreement: Agreement


class First(Frozen):
    """First place where the two sides part."""

    module: str | None
    node: str
    reason: str


class Difference(Frozen):
    """Difference of two nodes that make one value."""

    module: str | None
    parameter: str | None
    """Stored tensor that differs; None where the difference is not in a tensor."""
    node: str
    kind: str
    expected: str
    """Other side, in words."""
    found: str
    """MODEL, in words."""
    reads: tuple[str, ...] = ()
    """Stored tensors that are read there, if the comparison with PyTorch's program found the difference."""


class Fed(Frozen):
    """One input of one run."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    seed: int
    """Seed of the generator that draws its values."""
    file: str | None = None
    """File that it was read from; None where it was made."""


class LayerCost(Frozen):
    """Effect of rounding one module alone on the outputs."""

    module: str
    signal_to_error_db: float | None
    """Signal to error, in dB, of the output that is off the most: weights and quantizers together; None if nothing
    is lost."""
    weights_db: float | None
    """Signal to error, in dB, of the module's weights alone; None where they cost nothing, or it is unknown."""
    codes_db: float | None
    """Signal to error, in dB, of its quantizers of activations alone."""
    quantizers: int
    """Number of these quantizers."""
    nbytes: int
    """Bytes of its weights, as the file stores them."""
    float_nbytes: int
    """Bytes of the same weights in single precision."""


class KeptFloat(Frozen):
    """Gain of leaving modules in float."""

    modules: tuple[str, ...]
    more_nbytes: int
    """Bytes by which the file would grow."""
    before_db: float | None
    """Signal to error of the output that is off the most, with all modules rounded, in dB; the errors of weights and
    of quantizers are added up."""
    signal_to_error_db: float | None
    """Signal to error, in dB, with these modules in float and all others rounded; None where nothing is off then."""


class Costs(Frozen):
    """Effect of rounding on the outputs, for the first inputs. All numbers are of the output that is off the most."""

    weights_db: float | None
    """Signal to error, in dB, of PyTorch with the weights of the file; None where it is unknown, or nothing is off."""
    codes_db: float | None
    """Signal to error, in dB, of the file as it stands, compared with its float twin."""
    layers: tuple[LayerCost, ...]
    """Modules with any cost, the costliest first."""
    kept: KeptFloat | None
    """The costliest three left in float; None where it cannot be measured."""
    unmeasured: int
    """Number of modules for which there was no time."""


class Executed(Frozen):
    """One of the two ways in which one file ran."""

    optimization: Optimization
    """Level up to which onnxruntime could rewrite the graph."""
    provider: str
    """Execution provider, as `--provider` names it."""
    nodes: int | None
    """Number of nodes of the graph that ran; None where they are those of the file, or onnxruntime does not tell."""


LACKING = "outputs that the file lacks"
"""Case that is not tried: outputs of PyTorch that are left out. Another file must have the same outputs."""


class VerifyReport(Frozen):
    """Result of `verify`: whether two sides compute the same."""

    path: str
    against: str
    outputs: tuple[Pairing, ...]
    values: tuple[Pairing, ...]
    """Inner values of both sides, in the order of MODEL."""
    first: First | None
    """First place where they part; None where the outputs are the same, or no inner value tells."""
    checked: int
    """Number of nodes with the same name in both files, which were compared without running; against PyTorch or between
    two runs of one file, number of modules that were looked for; without any run, number of operators counted."""
    differences: tuple[Difference, ...]
    inputs: tuple[Fed, ...]
    uncovered: tuple[str, ...]
    """Sentences about cases that these runs did not try."""
    costs: Costs | None = None
    """Costs of rounding; None where they were not requested, nothing is rounded, or the outputs differ."""
    drift_db: float | None = None
    """Signal to error, in dB, of the output that is off the most: the file as it stands, compared with PyTorch and its
    own weights, or with the other file; infinite where nothing is off, None where it is unknown or not requested."""
    unfit: tuple[str, ...] = ()
    """Sizes that the file declares and the other side takes, each with the reason why onnxruntime does not run the
    file."""
    emptied: tuple[str, ...] = ()
    """Outputs of which nothing is left where the file rounds to codes, each with the signal to error."""
    executions: tuple[Executed, Executed] | None = None
    """Executions of MODEL and of the other side, where both are one file; else None."""
    stamp: str | None = None

    @property
    def same(self) -> bool:
        """Whether every output was compared, and none differs."""
        return bool(self.outputs) and all(each.agreement.verdict is Verdict.SAME for each in self.outputs)

    @property
    def is_answered(self) -> bool:
        """Whether every output is the same, or one differs; else one could not be compared, and the answer is open."""
        return self.same or any(each.agreement.verdict is Verdict.DIFFERS for each in self.outputs)
