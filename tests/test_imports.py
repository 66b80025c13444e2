"""The analyzer starts without the libraries of exporting and timing, and imports go in one direction."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from models import noise, save, text_model

import analyzer
import exporter

HEAVY = {"jinja2", "matplotlib", "onnx_ir", "onnxruntime", "onnxscript", "sympy", "torch", "transformers"}
ROOT = Path(__file__).parents[1]


@pytest.mark.child
@pytest.mark.parametrize("module", ["analyzer", "analyzer.cli"])
def test_importing_the_analyzer_imports_nothing_heavy(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(json.loads(done.stdout))


READS = """
import contextlib, io, json, sys
from analyzer.cli import main
sys.argv = ["onnxledger", *{arguments!r}]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
loaded = sorted(sys.modules)
import onnx
from analyzer.read import protos
print(json.dumps([loaded, protos.ModelProto is onnx.ModelProto]))
"""


@pytest.mark.child
@pytest.mark.parametrize(
    "arguments", ["inspect model.onnx --format json", "check model.onnx --max-parameters 1"]
)
def test_a_model_is_read_with_onnx_s_messages_and_without_the_rest_of_onnx(
    tmp_path: Path, arguments: str
) -> None:
    save(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Mul(x, w) }", {"w": noise(2, seed=0)}))
    code = READS.format(arguments=arguments.split())

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    loaded, are_same = json.loads(done.stdout)
    assert {"onnx", "ml_dtypes", "networkx"}.isdisjoint(loaded)
    assert "analyzer.account.audit" in loaded
    assert are_same


ALONE = """
import contextlib, io, json, os, sys
from analyzer.cli import main
sys.argv = ["onnxledger", "inspect", "model.onnx"]
before = dict(os.environ)
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
print(json.dumps([len(os.listdir("/proc/self/task")), "numpy" in sys.modules, before == dict(os.environ)]))
"""


@pytest.mark.child
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux lists the threads of a process")
def test_a_model_is_read_without_threads_that_wait(tmp_path: Path) -> None:
    save(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Mul(x, w) }", {"w": noise(2, seed=0)}))
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}

    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert json.loads(done.stdout) == [1, True, True]


QUERY_PROGRAM = """
from analyzer.process import collect_seldom
collect_seldom()
import duckdb
print(duckdb.sql("SELECT 1").fetchall())
"""


@pytest.mark.child
def test_a_process_that_has_queried_duckdb_ends_without_output() -> None:
    pytest.importorskip("duckdb")

    done = subprocess.run([sys.executable, "-c", QUERY_PROGRAM], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("[(1,)]\n", "")


PLANS = """
import json, sys
from pathlib import Path
from analyzer.read.described import Optimizing
from analyzer.timing.running import planned
described = planned._describe(Optimizing("model.onnx", str(Path.cwd()), "ORT_ENABLE_ALL"))
print(json.dumps([sorted(described.values), sorted(sys.modules)]))
"""


@pytest.mark.child
@pytest.mark.time
def test_the_graph_that_onnxruntime_would_run_is_read_without_pytorch(tmp_path: Path) -> None:
    save(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Mul(x, w) }", {"w": noise(2, seed=0)}))

    done = subprocess.run(
        [sys.executable, "-c", PLANS], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    values, loaded = json.loads(done.stdout)
    assert {"x", "y"} <= set(values)
    assert "onnxruntime" in loaded
    assert "torch" not in loaded


@pytest.mark.child
def test_python_dash_m_analyzer_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "analyzer", "--help"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: ")
    assert "inspect" in done.stdout


@pytest.mark.child
def test_public_names_import_nothing_heavy() -> None:
    code = (
        "import json, sys, analyzer; [getattr(analyzer, name) for name in analyzer.__all__];"
        " print(json.dumps(sorted(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(json.loads(done.stdout))


@pytest.mark.parametrize("package", [analyzer, exporter], ids=lambda package: package.__name__)
def test_public_names_are_sorted_and_have_types_and_a_module(package: ModuleType) -> None:
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        name.asname: (node.module or "").removeprefix(f"{package.__name__}.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }

    assert package.__all__ == sorted(package.__all__)
    lazy = {name: module for name, module in package._MODULES.items() if module}
    assert lazy == typed
    assert lazy.keys() <= set(package.__all__)
    with pytest.raises(AttributeError):
        _ = package.no_such_name


@pytest.mark.parametrize("name", analyzer.__all__)
def test_a_public_name_is_public_where_it_is_defined(name: str) -> None:
    module = importlib.import_module(f"analyzer.{analyzer._MODULES[name]}")

    assert getattr(analyzer, name) is getattr(module, name)


def imported(path: Path) -> set[str]:
    """Return every module that a file imports, at the top or in a function."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_only_commands_import_the_exporter() -> None:
    users = {
        path.relative_to(ROOT).parts[1]
        for path in (ROOT / "analyzer").rglob("*.py")
        if any(f"{name}.".startswith("exporter.") for name in imported(path))
    }

    assert users <= {"cli.py", "commands"}


def test_records_of_formulas_know_nothing_of_what_makes_them() -> None:
    ours = {
        name for name in imported(ROOT / "analyzer" / "formulas" / "record.py") if name.startswith("analyzer")
    }

    assert ours == {"analyzer.formulas.language", "analyzer.records"}
