"""docs/library.md is a test: its Python prints and writes the same as the command beside it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import documents
import onnx
import pytest
import timings
from commands import run_here
from models import Values, manifest_of, noise, parameter, save, text_model
from safetensors.numpy import save_file

import analyzer
import exporter
from analyzer import Inspection, audit_model, group_by, save_manifest, save_report
from analyzer.cli import command
from analyzer.errors import UsageError
from analyzer.model.content import Array
from analyzer.process.child import Limits
from analyzer.timing import timer
from analyzer.timing.request import Reply, Request
from analyzer.timing.running import isolated
from analyzer.timing.running.isolated import Progress

PAGE = documents.ROOT / "docs" / "library.md"

CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
}
BUDGET = """
baseline = "main.json"
[[rules]]
name = "size"
metric = "stored-bytes"
limit = "at most +2 %"
[[rules]]
name = "one layer"
metric = "parameters"
group = "encoder.layer.*"
limit = 100
"""


@dataclass(frozen=True)
class Example:
    """Python code of the page, and the commands beside it."""

    section: str
    commands: tuple[str, ...]
    code: str


@dataclass(frozen=True)
class Outcome:
    """Printed text, and every file afterwards."""

    printed: str
    files: Mapping[str, bytes]


def examples() -> Iterator[Example]:
    text = PAGE.read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        title = section.partition("\n")[0]
        lines: tuple[str, ...] = ()
        for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
            if language == "python":
                yield Example(title, lines, body)
            lines = () if language == "python" else tuple(body.splitlines())


EXAMPLES = list(examples())
EXTRAS = {"export": pytest.mark.export, "time": pytest.mark.time}
"""Marks of sections that need optional packages."""


def weights() -> dict[str, Array]:
    """Return a BERT's state dict for the config, in the layout of Linear and Embedding."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (30, 8),
        "embeddings.position_embeddings.weight": (12, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
        "embeddings.LayerNorm.weight": (8,),
        "embeddings.LayerNorm.bias": (8,),
    }
    linear = [(f"attention.self.{name}", 8, 8) for name in ("query", "key", "value")]
    linear += [("attention.output.dense", 8, 8), ("intermediate.dense", 16, 8), ("output.dense", 8, 16)]
    for layer in range(CONFIG["num_hidden_layers"]):
        for name, out, width in linear:
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (out, width)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (out,)
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"encoder.layer.{layer}.{norm}.{part}": (8,) for part in ("weight", "bias")}
    shapes |= {"pooler.dense.weight": (8, 8), "pooler.dense.bias": (8,)}
    return {name: noise(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}


def bert(state: Mapping[str, Array]) -> onnx.ModelProto:
    """Return these weights as a runnable chain that is no real BERT; matrices are stored transposed."""
    stored, lines, last = {}, [], "x0"
    for name, array in state.items():
        value = f"x{len(lines) + 1}"
        if "word" in name:
            lines.append(f'{value} = Gather("{name}", input_ids)')
        elif "embeddings.weight" in name:
            lines.append(f'{value}_row = Gather("{name}", first)\n{value} = Add({last}, {value}_row)')
        elif array.ndim == 2:
            lines.append(f'{value} = MatMul({last}, "{name}")')
        else:
            lines.append(f'{value} = {"Mul" if "LayerNorm.weight" in name else "Add"}({last}, "{name}")')
        stored[name] = array.T.copy() if array.ndim == 2 and "embeddings" not in name else array
        last = value
    body = "\n".join(lines)
    graph = (
        f"g (int64[n] input_ids) => (float[n,8] {last}) {{ first = Constant <value_ints = [0]> ()\n{body} }}"
    )
    return text_model(graph, stored)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with every file that the page names."""
    folder = tmp_path_factory.mktemp("library")
    state = weights()
    save(folder, bert(state))
    manifest = manifest_of(*(parameter(name, array) for name, array in state.items()))
    save_manifest(manifest, folder / "manifest.json")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "budget.toml").write_text(BUDGET)
    for name in ("models", "parts", "state"):
        (folder / name).mkdir()
    save_file(dict(state), folder / "state" / "model.safetensors")
    tiny = {"encoder.fc.weight": noise(8, 8, seed=99), "encoder.fc.bias": noise(8, seed=98)}
    graph = 'g (float[2,8] x) => (float[2,8] y) { h = Gemm(x, "encoder.fc.weight", "encoder.fc.bias") y = Relu(h) }'
    for path in ("models/tiny.onnx", "parts/encoder.onnx"):
        save(folder, text_model(graph, tiny), path)
    for path in ("models/whole.onnx", "parts/decoder.onnx"):
        save(folder, bert(state), path)
    (folder / "models" / "broken.onnx").write_bytes(b"no model")
    with contextlib.chdir(folder):
        ledger = audit_model("model.onnx")
        save_report(Inspection(ledger, group_by(ledger)), "main.json")
    for name, factor in (("before", 1.0), ("after", 0.5)):
        (folder / name).mkdir()
        save_report(timings.make_timing(folder / name, factor=factor), folder / f"{name}.json")
        shutil.rmtree(folder / name)
    return folder


def run_code(example: Example, folder: Path) -> Outcome:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.chdir(folder):
        exec(compile(example.code, PAGE.name, "exec"), {})
    return Outcome(out.getvalue(), files_of(folder))


def run_commands(example: Example, folder: Path) -> Outcome:
    printed = ""
    for line in example.commands:
        program, *arguments = shlex.split(line)
        assert program == "onnxledger"
        done = run_here(*arguments, cwd=folder)
        assert done.returncode in (0, 1) or "cannot be read" in done.stderr, done.stderr
        printed += done.stdout
    return Outcome(printed, files_of(folder))


class OneMeasurement:
    """Measures only the first request and repeats that reply, so that noise makes no difference between two timings."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.reply: Reply | None = None
        self.graph = b""

    def __call__(self, request: Request, limits: Limits, progress: Progress | None = None) -> Reply:
        self.requests.append(dataclasses.replace(request, folder="", model=""))
        if self.reply is None:
            self.reply = isolated.run_isolated(request, limits, progress)
            self.graph = Path(str(self.reply.optimized)).read_bytes()
        path = Path(request.folder, "optimized.onnx")
        path.write_bytes(self.graph)
        return dataclasses.replace(self.reply, optimized=str(path))


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.child
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=f"{example.section}-{number}", marks=EXTRAS.get(example.section, ()))
        for number, example in enumerate(EXAMPLES)
    ],
)
def test_python_does_what_the_command_beside_it_does(
    example: Example, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurement = OneMeasurement()
    monkeypatch.setattr(timer, "run_isolated", measurement)
    copies = [tmp_path / name / "here" for name in ("library", "command")]
    for copy in copies:
        shutil.copytree(place, copy)
    library, commands = run_code(example, copies[0]), run_commands(example, copies[1])

    if example.section == "time":
        first, second = measurement.requests
        assert first == second
    if example.section == "explain":
        by_command = " ".join(commands.printed.split())
        assert all(" ".join(part.split()) in by_command for part in library.printed.split("\n\n"))
    elif example.commands:
        assert library.printed == commands.printed
    assert library.printed or library.files.keys() > files_of(place).keys()
    assert library.files == commands.files


def test_every_command_has_its_lines_of_python() -> None:
    shown = {line.split()[1] for example in EXAMPLES for line in example.commands}

    assert shown == set(command.commands)


def test_the_page_imports_public_names_alone() -> None:
    code = "\n".join(textwrap.dedent(example.code) for example in EXAMPLES)
    imports = re.findall(r"^from (analyzer|exporter)(\S*) import (\([^)]*\)|.*)$", code, re.MULTILINE)

    assert imports
    for package, module, names in imports:
        public = {"analyzer": analyzer, "exporter": exporter}[package].__all__
        assert not module
        assert set(re.findall(r"\w+", names)) <= set(public)


def test_a_checkpoint_of_the_page_has_the_values_of_the_model(place: Path) -> None:
    state = weights()
    original = analyzer.open_checkpoint(str(place / "state" / "model.safetensors"))

    assert original.weights is not None
    assert {p.name for p in original.manifest.parameters} == set(state)
    for name, array in Values(state).items():
        found = original.weights.array(name)
        assert found is not None
        assert found.tobytes() == array.tobytes()


def test_a_report_has_the_formats_of_its_kind_alone(place: Path, tmp_path: Path) -> None:
    ledger = audit_model(place / "model.onnx")
    report, graph = Inspection(ledger, group_by(ledger)), analyzer.GraphReport(analyzer.build_graph(ledger))

    with pytest.raises(UsageError, match=r"^junit: no format of Inspection; use one of .*\btext\b.*\bsarif$"):
        analyzer.render_report(report, "junit")
    with pytest.raises(UsageError, match=r"^text: no format of GraphReport; use one of dot, "):
        analyzer.render_report(graph, "text")
    with pytest.raises(UsageError, match=r"r\.xml: no format for the suffix '\.xml'; use one of \.json, "):
        save_report(report, tmp_path / "r.xml")
    with pytest.raises(UsageError, match=r"g\.md: no format for the suffix '\.md'; use one of "):
        save_report(graph, tmp_path / "g.md")
    with pytest.raises(UsageError, match=r"r\.json: cannot be written: "):
        save_report(report, tmp_path / "nowhere" / "r.json")
    assert not list(tmp_path.iterdir())


def test_a_formula_finds_tensors_without_names_by_the_shapes_of_the_manifest(
    place: Path, tmp_path: Path
) -> None:
    formula = analyzer.count_config(CONFIG)
    assert formula is not None
    numbers = {name: f"w{number}" for number, name in enumerate(weights())}
    proto = bert(weights())
    for tensor in proto.graph.initializer:
        tensor.name = numbers[tensor.name]
    for node in proto.graph.node:
        node.input[:] = [numbers.get(name, name) for name in node.input]
    nameless = audit_model(save(tmp_path, proto))
    alone = analyzer.check_formula(formula, model=nameless)

    assert alone.model is not None
    assert alone.model.unmatched
    assert analyzer.check_formula(formula, analyzer.load_manifest(place / "manifest.json"), nameless).agrees


@pytest.mark.parametrize("package", [analyzer, exporter], ids=lambda package: package.__name__)
def test_the_page_names_all_that_is_public(package: ModuleType) -> None:
    documented = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8").partition("## Every name")[2]))

    assert not set(package.__all__) - documented
