"""Values of a traced program that depend on no input, with their expressions and origins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import run_here
from models import lines_of

from analyzer.account.audit import audit_model
from analyzer.manifest import Manifest, Program, Traced
from analyzer.model.content import decode_values
from analyzer.reconciliation import reconcile_ledger

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from exporter import take_census  # noqa: E402  after the skip
from exporter.census import with_program  # noqa: E402
from exporter.fitting import tracer_of  # noqa: E402
from exporter.program import evaluate_program, merge_programs  # noqa: E402

pytestmark = pytest.mark.export


class Mixing(torch.nn.Module):
    """Values of parameters, tables of constants, a buffer that is written to, and a weight that is only viewed."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Parameter(torch.rand(8))
        self.decay = torch.nn.Parameter(torch.rand(8))
        self.table = torch.nn.Embedding(12, 8)
        self.plain = torch.nn.Parameter(torch.rand(8, 8))
        self.register_buffer("places", torch.arange(12))
        self.register_buffer("seen", torch.zeros(5, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        written = self.seen.clone()
        written[0] = x[0]
        waves = torch.sin(torch.arange(5)[:, None] * torch.linspace(0.1, 1.0, 8))
        mixed = x * self.mix + x.flip(0) * (1 - self.mix) + waves + written
        return (mixed @ self.plain.T.contiguous()) * torch.exp(-torch.exp(self.decay)) + self.table(
            self.places[:5]
        )


@pytest.fixture
def module() -> Mixing:
    torch.manual_seed(0)
    return Mixing().eval()


def describe(model: torch.nn.Module, *inputs: torch.Tensor) -> Manifest:
    traced = torch.export.export(model, inputs, strict=False)
    return with_program(take_census(model), evaluate_program(traced))


def values_of(manifest: Manifest) -> dict[str, Traced]:
    assert manifest.program is not None
    return {value.expression: value for value in manifest.program.values}


def test_values_have_their_expressions_parameters_and_readers(module: Mixing) -> None:
    values = values_of(describe(module, torch.rand(5, 8)))

    assert values["1 - mix"].parameters == ("mix",)
    assert values["1 - mix"].is_read
    assert values["1 - mix"].uses == (("", "mul"),)
    assert values["exp(decay)"].uses == (("", "neg"),)
    assert not values["exp(decay)"].is_read
    assert values["exp(-exp(decay))"].is_read


def test_values_are_what_the_program_computes(module: Mixing) -> None:
    value = values_of(describe(module, torch.rand(5, 8)))["1 - mix"]

    assert value.whole is not None
    assert np.array_equal(decode_values(value.whole, np.dtype("<f4")), 1 - module.mix.detach().numpy())


def test_views_and_casts_of_a_parameter_are_no_values(module: Mixing) -> None:
    manifest = describe(module, torch.rand(5, 8))

    assert not any("plain" in value.parameters for value in values_of(manifest).values())


def test_parameters_that_are_read_through_values_alone_are_reported(module: Mixing) -> None:
    manifest = describe(module, torch.rand(5, 8))

    assert manifest.program is not None
    assert manifest.program.through == ("decay", "table.weight")


def test_what_is_written_into_from_an_input_is_no_value(module: Mixing) -> None:
    assert not any("seen" in expression for expression in values_of(describe(module, torch.rand(5, 8))))


class Fixing(torch.nn.Module):
    """Module with a dynamic axis, which a table of fixed size fixes only after its length was used in a computation."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = torch.nn.Parameter(torch.rand(8, 8))
        self.places = torch.nn.Parameter(torch.rand(5, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        waves = torch.sin(torch.arange(-length, length)[:, None] * torch.linspace(0.1, 1.0, 8))
        return x @ (waves @ self.kernel).T[:, :8] + (x + self.places)


def test_what_is_computed_of_a_length_that_the_trace_has_fixed_is_a_value() -> None:
    torch.manual_seed(0)
    model, varying = Fixing().eval(), torch.export.Dim.AUTO
    traced = torch.export.export(
        model, (torch.rand(2, 5, 8),), dynamic_shapes=({0: varying, 1: varying},), strict=False
    )

    program = with_program(take_census(model), evaluate_program(traced)).program

    assert program is not None
    assert program.through == ("kernel",)
    assert any(value.parameters == ("kernel",) and value.shape == (10, 8) for value in program.values)


class Writing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = 1 - self.weight
        hidden.relu_()
        return x @ hidden


def test_each_state_of_a_value_that_is_written_over_is_a_value() -> None:
    model = Writing().eval()
    values = values_of(describe(model, torch.rand(2, 4))).values()

    states = [
        decode_values(value.whole, np.dtype("f4")).reshape(4, 4)
        for value in values
        if value.whole is not None
    ]
    before = 1 - model.weight.detach().numpy()
    assert any(np.array_equal(state, before) for state in states)
    assert any(np.array_equal(state, np.maximum(before, 0)) for state in states)


class Filled(torch.nn.Module):
    """Module that uses only the shape of an input for some values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones_like(x).cumsum(0).sin() + x.new_full((3, 4), 0.5).cumsum(1).cos()


def test_what_has_an_inputs_shape_alone_is_known_where_that_is_fixed() -> None:
    found = values_of(describe(Filled(), torch.ones(3, 4)))

    assert any("ones_like(1)" in expression and "sin" in expression for expression in found)
    assert any("0.5" in expression and "cos" in expression for expression in found)


def test_a_value_that_is_written_over_says_only_what_was_computed_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without decompositions, torch has no program without in-place operations."""
    monkeypatch.delattr(torch.export.ExportedProgram, "run_decompositions")
    values = values_of(describe(Writing().eval(), torch.rand(2, 4)))

    assert values["1 - weight"].content is None
    assert values["relu(1 - weight)"].origins == (values["1 - weight"].name,)


class Picking(torch.nn.Module):
    """Module with a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.order = torch.tensor([3, 0, 2, 1, 1, 5, 4, 7])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, self.order]


def test_a_tensor_that_no_state_dict_has_is_a_value() -> None:
    (value,) = values_of(describe(Picking().eval(), torch.rand(2, 8))).values()

    assert (value.expression, value.shape, value.uses) == ("constant", (8,), (("", "index"),))


class Random(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(4) + torch.nn.functional.dropout(torch.arange(4.0) * 3.5, training=False)


def test_random_numbers_are_no_values() -> None:
    assert not any("rand" in expression for expression in values_of(describe(Random(), torch.rand(4))))


def test_values_of_several_programs_have_names_of_their_own(module: Mixing) -> None:
    program = evaluate_program(torch.export.export(module, (torch.rand(5, 8),), strict=False))
    merged = merge_programs([program, program])

    assert len({value.name for value in merged.values}) == 2 * len(program.values)
    assert with_program(take_census(module), merged).program.through == ("decay", "table.weight")


def test_values_beyond_the_bound_are_counted(module: Mixing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.census._MOST_VALUES", 2)
    program = describe(module, torch.rand(5, 8)).program

    assert program is not None
    assert program.notes == ("8 values beyond 2 values and 8 MiB together",)
    assert sum(value.content is not None for value in program.values) == 2


def test_large_values_are_left_out(module: Mixing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.program._MOST_ELEMENTS", 20)
    program = describe(module, torch.rand(5, 8)).program

    assert program is not None
    assert any("of more than 20 elements" in note for note in program.notes)


def test_a_model_that_cannot_be_traced_has_a_note_and_no_values(module: Mixing) -> None:
    manifest = tracer_of(module, None, (torch.rand(3),))(take_census(module), (), "")

    assert manifest.program is not None
    assert manifest.program.values == ()
    assert manifest.program.notes[0].startswith("not traced: ")


def test_a_file_that_claims_any_size_is_not_traced(module: Mixing) -> None:
    trace = tracer_of(module, None, (torch.rand(5, 8),))
    manifest = trace(take_census(module), (("x", (1 << 40, 8)),), "")

    assert manifest.program == Program(notes=("not traced: the file's inputs are larger than any example",))


def test_the_shapes_of_a_file_are_traced(module: Mixing) -> None:
    module.forward = lambda x: x + torch.sin(torch.arange(x.shape[0])[:, None] * module.mix)
    trace = tracer_of(module, None, {"x": torch.rand(5, 8)})
    manifest = trace(take_census(module), (("x", (7, None)),), "")

    assert {value.shape for value in values_of(manifest).values() if "sin" in value.expression} == {(7, 8)}


class Idle(torch.nn.Module):
    """Module that reads one parameter, but neither another one nor its head."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = torch.nn.Parameter(torch.randn(8)), torch.nn.Parameter(torch.randn(8))
        self.lm_head = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.used


class Choosing(Idle):
    """Module that reads its other parameter only for an optional input."""

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return x * self.used if y is None else x * self.used + y * self.idle


@pytest.mark.parametrize(
    ("module", "inputs", "read"),
    [
        (Idle, ["x"], False),
        (Idle, ["in0"], False),  # forward takes one input only
        (Choosing, ["x"], False),
        (Choosing, ["in0"], None),
        (Choosing, ["y"], None),
        (Idle, ["x", "y"], None),
    ],
)
def test_what_a_class_does_not_read_is_reported_where_the_file_has_no_other_input(
    module: type[Idle], inputs: list[str], read: bool | None
) -> None:
    torch.manual_seed(0)
    trace = tracer_of(module(), None, {"x": torch.rand(5, 8)})

    manifest = trace(take_census(module()), [(name, (5, 8)) for name in inputs], "")

    found = {parameter.name: parameter.read for parameter in manifest.parameters}
    assert (found["idle"], found["lm_head.weight"]) == (read, read)
    assert found["used"] is (None if read is None else True)
    assert manifest.trace == (None if read is None else "class-program")


def test_an_input_that_an_exporter_removed_has_the_sizes_of_the_others() -> None:
    from transformers import BartConfig, BartForCausalLM

    config = BartConfig(
        vocab_size=20,
        d_model=8,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=8,
        encoder_layers=1,
    )
    model = BartForCausalLM(config).eval()

    manifest = tracer_of(model, config)(
        take_census(model), [("input_ids", (3, 5))], ""
    )  # and no attention_mask

    assert manifest.trace == "class-program"
    unread = {parameter.name for parameter in manifest.parameters if parameter.read is False}
    assert len(unread) == 10
    assert all(".encoder_attn" in name for name in unread)


@pytest.mark.parametrize("via", ["dynamo", "torchscript"])
def test_an_export_balances_by_its_own_program(tmp_path: Path, module: Mixing, via: str) -> None:
    from exporter.export import export_model
    from exporter.sources import ResolvedModel

    resolved = ResolvedModel(
        module, "tests:mixing", "factory", "Mixing", None, (torch.rand(5, 8),), "factory", "fp32", 0
    )
    files = export_model(resolved, tmp_path, via=via, static=True)
    ledger = audit_model(files.model)
    result = reconcile_ledger(ledger, files.manifest)

    assert result.balanced
    assert "1 - mix" in {line.expression for line in result.evaluated}
    assert lines_of(result)["decay"] == ("evaluated" if via == "dynamo" else "identical")
    without = reconcile_ledger(ledger, with_program(files.manifest, merge_programs([])))
    assert not without.balanced


FACTORY = """
import torch
class Mixing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Parameter(torch.rand(8))
    def forward(self, x):
        return x * (1 - self.mix)
def factory():
    return Mixing().eval(), (torch.rand(5, 8),)
"""


def test_against_a_factory_the_program_is_traced_on_the_spot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mixing_here.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    made = run_here("export", "mixing_here:factory", "-o", "out", "--via", "torchscript", "--quiet")

    answered = run_here("reconcile", "out/model.onnx", "--against", "mixing_here:factory")

    assert made.returncode == 0, made.stderr
    assert answered.returncode == 0, answered.stdout
    assert "tracing PyTorch's program" in answered.stderr
    assert "1 - mix" in answered.stdout
