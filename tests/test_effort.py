"""Effort of each command for one small model: no command may exceed the recorded effort by more than a fifth.

Time differs by machine and load; the number of calls that Python makes, and the peak of allocated bytes, hardly
differ. `make golden` records them anew; read the difference.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import run_here
from models import FOLDED_FROM, Values, manifest_of, noise, parameter, save, text_model
from onnx import ModelProto

from analyzer import audit_model, save_manifest

EFFORT = Path(__file__).parent / "golden" / "effort.json"
LAYERS, WIDTH, WORDS = 12, 16, 3_000
ALLOWED = 1.2
"""Largest permitted ratio to the recorded effort."""

COMMANDS = {
    "inspect": "inspect model.onnx",
    "inspect json": "inspect model.onnx --format json",
    "inspect blocks": "inspect model.onnx --by block,role",
    "inspect work": "inspect model.onnx --shape n=8",
    "reconcile": "reconcile model.onnx --against manifest.json",
    "compare": "compare model.onnx other.onnx",
    "check": "check model.onnx --max-parameters 1M --no-duplicates",
    "cost": "cost model.onnx --shape n=8",
    "recover": "recover model.onnx --against manifest.json -o recovered.safetensors",
    "graph": "graph model.onnx",
    "show": "show saved.json",
    "page": "inspect model.onnx --quiet -o page.html",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a model of many layers, a model that differs in a value, and PyTorch's manifest."""
    folder = tmp_path_factory.mktemp("effort")
    weights: Values = {"embeddings.word_embeddings.weight": noise(WORDS, WIDTH, seed=0)}
    lines, last = ['x0 = Gather("embeddings.word_embeddings.weight", input_ids)'], "x0"
    for layer in range(LAYERS):
        for at, part in enumerate(("query", "key", "value", "output", "up", "down")):
            name, value = f"encoder.layer.{layer}.{part}", f"x{len(lines)}"
            weights[f"{name}.weight"] = noise(WIDTH, WIDTH, seed=100 * layer + 2 * at + 1)
            weights[f"{name}.bias"] = noise(WIDTH, seed=100 * layer + 2 * at + 2)
            lines.append(f'{value}_made = MatMul({last}, "{name}.weight")')
            lines.append(f'{value}_moved = Add({value}_made, "{name}.bias")')
            lines.append(f"{value} = Tanh({value}_moved)")
            last = value
    graph = f"g (int64[n] input_ids) => (float[n,{WIDTH}] {last}) {{ {chr(10).join(lines)} }}"
    save(folder, text_model(graph, weights))
    save(
        folder, text_model(graph, {**weights, "encoder.layer.3.up.bias": noise(WIDTH, seed=9)}), "other.onnx"
    )
    stored = (
        (name, array.T.copy() if name.startswith("encoder") else array) for name, array in weights.items()
    )
    save_manifest(manifest_of(*(parameter(name, array) for name, array in stored)), folder / "manifest.json")
    run_here("inspect", "model.onnx", "-o", "saved.json", "--quiet", cwd=folder)
    return folder


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> Callable[[str, dict[str, int]], None]:
    """`counted(name, found)` compares counts with tests/golden/effort.json, which `make golden` rewrites."""

    def compare(name: str, found: dict[str, int]) -> None:
        known = json.loads(EFFORT.read_text(encoding="utf-8")) if EFFORT.is_file() else {}
        if request.config.getoption("--update-golden"):
            known = {each: known[each] for each in sorted(COMMANDS) if each in known} | {name: found}
            EFFORT.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        over = {
            what: (count, known[name][what])
            for what, count in found.items()
            if count > ALLOWED * known[name][what]
        }
        assert not over, f"{name}: {over}; if that is worth it: make golden"

    return compare


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_takes_a_fifth_more_than_is_written_down(
    name: str, place: Path, counted: Callable[[str, dict[str, int]], None]
) -> None:
    arguments = COMMANDS[name].split()
    done = run_here(*arguments, cwd=place)  # load modules, compile expressions, read templates
    assert done.returncode in (0, 1), done.stderr

    with cProfile.Profile() as profile:
        run_here(*arguments, cwd=place)
    tracemalloc.start()
    run_here(*arguments, cwd=place)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    counted(name, {"calls": pstats.Stats(profile).total_calls, "bytes held": most_bytes})


FANS = {
    "tensors into one Concat that as many look at": ("Concat", "Gather(c, x)"),
    "tensors into one Concat, and each beside it": ("Concat", "Add(c, w{i})"),
    "tensors, each moved, into one Concat": ("moved", "Where(x, c, w{i})"),
    "calls of a function": ("Concat", "f.F(c, w{i})"),
    "sums of all": ("Sum", "MatMul(x, c)"),
}
"""Ways in which thousands of tensors reach one value, and in which as many nodes read it."""

OPSETS = '<ir_version: 10, opset_import: ["": 17, "f": 1]>'
FUNCTION = '<domain: "f", opset_import: ["": 17]> F (a, b) => (z) { t = MatMul(a, b) z = Add(t, b) }'


@pytest.mark.slow
@pytest.mark.parametrize("fan", FANS)
def test_what_thousands_share_is_looked_at_once(tmp_path: Path, fan: str) -> None:
    into, read = FANS[fan]

    def calls(count: int) -> int:
        names = [f"w{i}" for i in range(count)]
        lines = [f"m{i} = Identity(w{i})" for i in range(count)] if into == "moved" else []
        joined = ", ".join(f"m{i}" for i in range(count)) if lines else ", ".join(names)
        lines.append(f"c = {'Sum' if into == 'Sum' else 'Concat<axis=0>'}({joined})")
        lines += [f"o{i} = {read.format(i=i)}" for i in range(count)]
        lines.append(f"y = Sum({', '.join(f'o{i}' for i in range(count))})")
        weights = {name: noise(4, seed=number) for number, name in enumerate(names)}
        graph = f"g (float[4] x) => (float[4] y) {{ {' '.join(lines)} }}"
        proto = text_model(f"{OPSETS} {graph} {FUNCTION}", weights)
        path = save(tmp_path, proto, f"{count}.onnx")
        with cProfile.Profile() as profile:
            audit_model(path)
        return int(pstats.Stats(profile).total_calls)

    calls(10)  # load modules, compile expressions
    few, many = calls(100), calls(400)

    assert many < 5 * few


def calls_of_reconcile(folder: Path, proto: ModelProto, weights: Values, content: str = "full") -> int:
    """Count the calls that reconcile a file with these weights; it must balance."""
    save(folder, proto)
    manifest = manifest_of(*(parameter(name, array) for name, array in weights.items()))
    save_manifest(manifest, folder / "manifest.json")
    command = f"reconcile model.onnx --against manifest.json --content {content}"
    with cProfile.Profile() as profile:
        assert run_here(*command.split(), cwd=folder).returncode == 0
    return int(pstats.Stats(profile).total_calls)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["none", "full"])
def test_a_chain_of_joined_tensors_is_followed_once(tmp_path: Path, content: str) -> None:
    def calls(count: int) -> int:
        weights = {f"w{i}": noise(4, 4, seed=i) for i in range(count)}
        lines = ["c0 = Identity(w0)"]
        lines += [f"c{i} = Concat<axis=0>(c{i - 1}, w{i})" for i in range(1, count)]
        lines.append(f"y = MatMul(c{count - 1}, x)")
        graph = f"g (float[4,4] x) => (float[n,4] y) {{ {' '.join(lines)} }}"
        return calls_of_reconcile(tmp_path, text_model(graph, weights), weights, content)

    calls(10)
    few, many = calls(100), calls(400)

    assert many < 5 * few


@pytest.mark.slow
@pytest.mark.parametrize("moved", ["Identity({})", "Transpose({})", "Reshape({}, both)"])
def test_the_tensors_that_nodes_join_are_followed_together(tmp_path: Path, moved: str) -> None:
    def calls(count: int) -> int:
        weights = {f"l.{i}.weight": noise(4, 4, seed=i) for i in range(count)}
        quoted = [f'"{name}"' for name in weights]
        lines = [f"m{i} = {moved.format(name)}" for i, name in enumerate(quoted)]
        lines.append(f"c = Concat<axis=0>({', '.join(f'm{i}' for i in range(count))}) y = MatMul(c, x)")
        graph = f"g (float[4,4] x) => (float[n,4] y) {{ {' '.join(lines)} }}"
        both = {"both": np.array([4, 4])} if "both" in moved else {}
        return calls_of_reconcile(tmp_path, text_model(graph, weights | both), weights)

    calls(10)
    few, many = calls(100), calls(400)

    assert many < 5 * few


def crowd(folder: Path, count: int) -> Path:
    """Save a chain of products, each with a weight of its own module: as many groups, rows and blocks."""
    weights = {f"layer.{i}.weight": noise(4, 4, seed=i) for i in range(count)}
    lines = [f'x{i + 1} = MatMul(x{i}, "layer.{i}.weight")' for i in range(count)]
    graph = f"g (float[4,4] x0) => (float[4,4] x{count}) {{ {' '.join(lines)} }}"
    return save(folder, text_model(graph, weights), f"{count}.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(("style", "most"), [("text", 720), ("json", 740)])
def test_a_tensor_of_many_takes_a_few_hundred_calls(tmp_path: Path, style: str, most: int) -> None:
    def calls(count: int) -> int:
        path = str(crowd(tmp_path, count))
        with cProfile.Profile() as profile:
            assert run_here("inspect", path, "--format", style).returncode == 0
        return int(pstats.Stats(profile).total_calls)

    calls(10)
    few, many, more = calls(100), calls(400), calls(1600)

    assert more - many < 5 * (many - few)
    assert more - many < most * 1200


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 4), (3, 8)])
@pytest.mark.parametrize(("into", "most"), [("Sum", 600), ("chain", 850)])
def test_a_small_tensor_that_nothing_explains_takes_a_few_hundred_calls(
    tmp_path: Path, into: str, most: int, shape: tuple[int, int]
) -> None:
    """Three rows cannot prove waves, and chained Adds may compute a shape: both checks must end soon."""

    def calls(count: int) -> int:
        weights = {f"w{i}": noise(*shape, seed=i) for i in range(count)}
        if into == "Sum":
            lines = [f"x{count} = Sum(x0, {', '.join(weights)})"]
        else:
            lines = [f"x{i + 1} = Add(x{i}, w{i})" for i in range(count)]
        kind = f"float[{shape[0]},{shape[1]}]"
        graph = f"g ({kind} x0) => ({kind} x{count}) {{ {' '.join(lines)} }}"
        path = save(tmp_path, text_model(graph, weights), f"{count}.onnx")
        with cProfile.Profile() as profile:
            audit_model(path)
        return int(pstats.Stats(profile).total_calls)

    calls(10)
    few, many = calls(200), calls(600)

    assert many - few < most * 400, (many - few) / 400


@pytest.mark.slow
def test_a_json_report_is_not_kept_in_memory_as_dicts_besides(tmp_path: Path) -> None:
    path = str(crowd(tmp_path, 1000))
    extra_bytes = {}
    for style in ("text", "json"):
        run_here("inspect", path, "--format", style)
        tracemalloc.start()
        made = run_here("inspect", path, "--format", style)
        extra_bytes[style] = tracemalloc.get_traced_memory()[1] - 3 * len(made.stdout)
        tracemalloc.stop()

    assert extra_bytes["json"] < 1.2 * extra_bytes["text"]


@pytest.mark.slow
def test_norms_whose_axes_were_put_elsewhere_are_compared_with_their_own_shift_alone(tmp_path: Path) -> None:
    def calls(count: int) -> int:
        weights = {f"val_{i}": noise(4, 1, 1, seed=i) for i in range(count)}
        lines = [f"x{i + 1} = Mul(x{i}, val_{i})" for i in range(count)]
        proto = text_model(
            f"g (float[4,1,1] x0) => (float[4,1,1] x{count}) {{ {' '.join(lines)} }}",
            {**weights, "a.weight": noise(4, seed=count)},
        )
        for i in range(count):
            proto.graph.value_info.add(name=f"val_{i}").metadata_props.add(
                key=FOLDED_FROM, value=f"['n.{i}.weight', 'val_x']"
            )
        path = save(tmp_path, proto, f"{count}.onnx")
        with cProfile.Profile() as profile:
            audit_model(path)
        return int(pstats.Stats(profile).total_calls)

    calls(10)
    few, many = calls(100), calls(400)

    assert many < 5 * few
