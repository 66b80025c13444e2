"""The command line: its output streams and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from commands import run_here, run_isolated
from models import save, text_model

from analyzer.manifest import Content, Manifest, Parameter, save_manifest
from analyzer.model.content import digest, encode_values, sample
from analyzer.model.dtypes import DType
from analyzer.schemas import load_schema

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = text_model("g (float[1,2] x) => (float[1,3] y) { y = MatMul(x, w) }", {"w": WEIGHTS})
    proto.graph.initializer[0].name = proto.graph.node[0].input[1] = "fc.weight"
    return save(tmp_path, proto)


@pytest.fixture
def manifest(model: Path) -> Path:
    content = Content(digest(WEIGHTS), digest(WEIGHTS.T), False, encode_values(sample(WEIGHTS)))
    path = model.parent / "manifest.json"
    save_manifest(Manifest((Parameter("fc.weight", (2, 3), DType.FLOAT, True, content=content),)), path)
    return path


@pytest.mark.child
def test_inspect_prints_its_report_to_stdout_and_nothing_to_stderr(model: Path) -> None:
    result = run_isolated("inspect", model)

    assert result.returncode == 0
    assert "6 parameters" in result.stdout
    assert result.stderr == ""


@pytest.mark.child
def test_json_is_valid_and_the_same_on_a_second_run(model: Path) -> None:
    first, second = (run_isolated("inspect", model, "--format", "json").stdout for _ in range(2))

    jsonschema.validate(json.loads(first), load_schema("inspect"))
    assert first == second


def test_stamp_and_digest_are_in_the_report_only_on_request(model: Path) -> None:
    plain = json.loads(run_here("inspect", model, "--format", "json").stdout)
    full = json.loads(run_here("inspect", model, "--format", "json", "--stamp", "--digest").stdout)

    jsonschema.validate(full, load_schema("inspect"))
    assert "generated_at" not in plain
    assert full["generated_at"]
    assert len(full["model"]["files"][0]["sha256"]) == 64


def test_outputs_are_written_by_suffix_beside_the_report_on_stdout(model: Path, tmp_path: Path) -> None:
    result = run_here("inspect", model, "-o", tmp_path / "a.json", "-o", tmp_path / "b.txt")

    assert json.loads((tmp_path / "a.json").read_text())["totals"]["parameters"] == 6
    assert (tmp_path / "b.txt").read_text() == result.stdout


def test_an_unknown_suffix_is_a_usage_error_and_nothing_is_written(model: Path, tmp_path: Path) -> None:
    result = run_here("inspect", model, "-o", tmp_path / "a.json", "-o", tmp_path / "b.docx")

    assert result.returncode == 2
    assert "no format for the suffix '.docx'" in result.stderr
    assert not (tmp_path / "a.json").exists()


def test_quiet_prints_nothing_and_the_exit_code_answers(model: Path, manifest: Path) -> None:
    result = run_here("reconcile", model, "--quiet")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_strict_makes_any_finding_fail_and_ignore_takes_it_back(model: Path) -> None:
    proto = onnx.load(model)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.int64), "spare"))
    onnx.save(proto, model)

    assert run_here("inspect", model).returncode == 0
    assert run_here("inspect", model, "--strict").returncode == 1
    assert run_here("inspect", model, "--strict", "--ignore", "unused-initializer").returncode == 1
    both = ("--ignore", "unused-initializer", "--ignore", "unattributed")
    assert run_here("inspect", model, "--strict", *both).returncode == 0


def test_reconcile_takes_the_manifest_beside_the_model(model: Path, manifest: Path) -> None:
    result = run_here("reconcile", model, "--format", "json")

    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("reconcile"))
    assert result.returncode == 0
    assert document["balanced"] is True
    assert document["onnx"] == {"parameters": 6, "parameters_alone": 6, "stored_elements": 6}


def test_reconcile_exits_1_and_names_the_culprit(model: Path, manifest: Path) -> None:
    proto = onnx.load(model)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(WEIGHTS + 1, "fc.weight"))
    onnx.save(proto, model)

    result = run_here("reconcile", model)

    assert result.returncode == 1
    assert "DOES NOT BALANCE" in result.stdout
    assert "the file has other values under this name: fc.weight [differing]" in " ".join(
        result.stdout.split()
    )


def test_reconcile_without_a_pytorch_side_is_an_error_that_says_what_to_do(model: Path) -> None:
    result = run_here("reconcile", model)

    assert result.returncode == 2
    assert "--against SOURCE" in result.stderr
    assert result.stdout == ""


def test_contents_cannot_be_compared_with_a_manifest_that_has_none(model: Path) -> None:
    save_manifest(
        Manifest((Parameter("fc.weight", (2, 3), DType.FLOAT, True),)), model.parent / "manifest.json"
    )

    assert run_here("reconcile", model).returncode == 0
    result = run_here("reconcile", model, "--content", "full")

    assert result.returncode == 2
    assert "--content none" in result.stderr


def test_compare_takes_models_and_saved_reports(model: Path, tmp_path: Path) -> None:
    run_here("inspect", model, "--quiet", "-o", tmp_path / "saved.json")

    models = json.loads(run_here("compare", model, model, "--format", "json").stdout)
    saved = json.loads(run_here("compare", tmp_path / "saved.json", model, "--format", "json").stdout)

    jsonschema.validate(models, load_schema("compare"))
    assert models["groups"] == saved["groups"]
    assert {group["status"] for group in models["groups"]} == {"unchanged"}
    assert models["totals"]["parameters"] == {"a": 6, "b": 6, "difference": 0, "change": 0, "ratio": 1.0}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("inspect", "nowhere.onnx"), "nowhere.onnx: cannot be read"),
        (("inspect", "."), "the folder has no .onnx file"),
        (("inspect", ""), "the name is empty"),
        (("inspect",), "onnxledger: Missing argument 'MODEL...'; see onnxledger inspect --help"),
        (("inspect", "m.onnx", "--by", "colour"), "'colour' is not one of"),
        (("inspect", "m.onnx", "--group", "nonsense"), "write NAME=REGEX"),
        (("inspect", "m.onnx", "--group", "a=("), "unterminated subpattern"),
        (("inspect", "m.onnx", "--depth", "0"), "0 is not in the range"),
        (("compare", "nowhere.json", "nowhere.json"), "nowhere.json: cannot be read"),
        (("frobnicate",), "No such command 'frobnicate'"),
        (("m.onnx",), "Did you mean inspect m.onnx?"),
        (("inspect", "m.onnx", "--format", "html"), "write -o FILE.html"),
        (("inspect", "m.onnx", "--format", "md"), "'md' is not one of"),
        (("reconcile", "m.onnx"), "m.onnx: cannot be read: No such file or directory"),
        (("reconcile", "m.onnx", "--against", "w.pt"), "m.onnx: cannot be read: No such file or directory"),
        (("verify", "m.onnx"), "m.onnx: cannot be read: No such file or directory"),
        (("inspect", "-"), "a model is not read from stdin: save it to a file, and name that"),
        (("show", "."), "it is a folder; name a file in it"),
        (("compare", "m.onnx", ""), "NEW: the name is empty"),
        (("reconcile", ""), "MODEL: the name is empty"),
        (("reconcile", "m.onnx", "--against", ""), "--against: the name is empty"),
        (("verify", "m.onnx", "--against="), "--against: the name is empty"),
        (("recover", "", "-o", "w.safetensors"), "MODEL: the name is empty"),
        (("recover", "m.onnx", "-o", ""), "-o: the name is empty"),
        (("cost", ""), "MODEL: the name is empty"),
        (("graph", "", "-o", "g.svg"), "MODEL: the name is empty"),
        (("export", "", "-o", "made"), "SOURCE: the name is empty"),
        (("formula", "bert-base-uncased", "--against", ""), "--against: the name is empty"),
        (("show", ""), "REPORT: the name is empty"),
        (("sql", "", "SELECT 1"), "LAKE: the name is empty"),
        (
            ("inspect", "m.onnx", "-o", "nowhere/r.json"),
            "-o nowhere/r.json: its folder does not exist; create it first",
        ),
        (("reconcile", "."), "neither manifest.json nor config.json is in it"),
        (("check", "m.onnx", "--max-bytes", "0.45"), "write a whole number, or a unit, as in 450MiB"),
        (("check", "m.onnx", "--max-parameters", "0.45"), "parameters are whole; write a whole number"),
    ],
)
def test_what_cannot_be_answered_is_reported_in_a_sentence_and_exit_2(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    result = run_here(*arguments, cwd=tmp_path)

    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_model_named_without_its_suffix_is_proposed_with_it(model: Path) -> None:
    without_suffix = run_here("inspect", model.stem, cwd=model.parent)
    other = run_here("inspect", "nowhere", cwd=model.parent)

    assert f"did you mean {model.name}?" in without_suffix.stderr
    assert "did you mean" not in other.stderr


def test_reconcile_takes_a_folder_that_holds_a_manifest(model: Path, manifest: Path) -> None:
    result = run_here("reconcile", model, "--against", manifest.parent)

    assert (result.returncode, result.stderr) == (0, "")


def test_a_manifest_is_preferred_to_the_config_beside_it(model: Path, manifest: Path) -> None:
    (manifest.parent / "config.json").write_text('{"model_type": "bert"}')

    result = run_here("reconcile", model, "--against", manifest.parent)

    assert (result.returncode, result.stderr) == (0, "")
    assert "names and shapes only" not in result.stdout


def test_verbose_adds_the_traceback(tmp_path: Path) -> None:
    result = run_here("inspect", tmp_path / "nowhere.onnx", "--verbose")

    assert result.returncode == 2
    assert "Traceback" in result.stderr


def test_a_file_that_is_no_model_is_refused_by_name_and_id(tmp_path: Path) -> None:
    (tmp_path / "page.onnx").write_text("<html>not found</html>")

    result = run_here("inspect", tmp_path / "page.onnx")

    assert result.returncode == 2
    assert "page.onnx: [not-onnx]" in result.stderr


def test_a_name_cannot_reach_the_terminal_as_an_escape_sequence(model: Path) -> None:
    proto = onnx.load(model)
    proto.graph.initializer[0].name = proto.graph.node[0].input[1] = "\x1b[2Jw\u202e"
    onnx.save(proto, model)

    result = run_here("inspect", model, "-v")

    assert "\x1b" not in result.stdout
    assert "\\x1b[2Jw\\u202e" in result.stdout


@pytest.mark.child
def test_a_reader_that_leaves_early_gets_no_traceback(model: Path) -> None:
    command = f'"{sys.executable}" -m analyzer inspect "{model}" --format json | head -c 1'

    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert "Traceback" not in result.stderr


def test_the_input_is_never_written_to(model: Path, manifest: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in model.parent.iterdir()}

    run_here("inspect", model)
    run_here("reconcile", model)

    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in model.parent.iterdir()} == before


@pytest.mark.child
def test_exporting_without_torch_names_the_extra(tmp_path: Path) -> None:
    blocked = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['onnxledger', 'export', 'gpt2', '-o', 'out']; "
    )
    command = [sys.executable, "-c", blocked + "from analyzer.cli import main; main()"]

    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert result.returncode == 2
    assert 'pip install "onnxledger[export]"' in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.export
def test_export_writes_the_folder_and_reports_what_it_reconciled(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "tiny.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(4, 3)), (torch.randn(2, 4),)\n"
    )

    result = run_isolated("export", "tiny:build", "-o", "out", "--format", "json", cwd=tmp_path)

    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("export"))
    assert result.returncode == 0
    assert {"out/manifest.json", "out/model.onnx"} <= set(document["files"])
    assert document["reconcile"]["balanced"] is True
    assert document["reconcile"]["pytorch"]["parameters"] == 15


@pytest.mark.parametrize("command", ["inspect", "reconcile", "compare"])
def test_what_is_read_is_never_written(model: Path, manifest: Path, tmp_path: Path, command: str) -> None:
    run_here("inspect", model, "--quiet", "-o", tmp_path / "saved.json")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = {
        "inspect": (model, "-o", model),
        "reconcile": (model, "-o", manifest),
        "compare": (tmp_path / "saved.json", model, "-o", tmp_path / "saved.json"),
    }[command]

    result = run_here(command, *arguments)

    assert result.returncode == 2
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_report_is_no_pytorch_side(model: Path, tmp_path: Path) -> None:
    run_here("inspect", model, "--quiet", "-o", tmp_path / "saved.json")

    result = run_here("reconcile", model, "--against", tmp_path / "saved.json")

    assert result.returncode == 2
    assert "not a manifest" in result.stderr


def test_an_unreadable_weight_does_not_balance(model: Path, manifest: Path) -> None:
    proto = onnx.load(model)
    proto.graph.initializer[0].raw_data = b"short"
    onnx.save(proto, model)

    result = run_here("reconcile", model)

    assert result.returncode == 1
    assert "[payload-mismatch]" in result.stdout
    assert "DOES NOT BALANCE" in result.stdout


@pytest.mark.child
def test_an_encoding_without_the_characters_of_the_report_still_shows_it(model: Path) -> None:
    command = [sys.executable, "-m", "analyzer", "inspect", str(model)]

    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        encoding="latin-1",
    )

    assert result.returncode == 0
    assert "6 parameters" in result.stdout


@pytest.mark.child
@pytest.mark.parametrize(
    ("redirection", "code"),
    [(">&-", 0), ("2>&-", 0), ("> /dev/full", 2)],
    ids=["no stdout", "no stderr", "full disk"],
)
def test_streams_that_cannot_be_written_to_end_without_a_traceback(
    model: Path, redirection: str, code: int
) -> None:
    command = f'"{sys.executable}" -m analyzer inspect "{model}" {redirection}'

    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert result.returncode == code
    assert "Traceback" not in result.stderr
    assert "internal error" not in result.stderr
    assert "Exception ignored" not in result.stderr


@pytest.mark.child
@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full", "> /dev/full 2> /dev/full"])
def test_a_refusal_that_cannot_be_printed_is_still_no_answer(redirection: str) -> None:
    command = f'"{sys.executable}" -m analyzer inspect missing.onnx {redirection}'

    assert subprocess.run(["bash", "-c", command], check=False).returncode == 2


def test_metadata_that_is_no_list_is_no_scope(model: Path) -> None:
    proto = onnx.load(model)
    proto.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="{[1]}")
    onnx.save(proto, model)

    assert run_here("inspect", model).returncode == 0


def test_links_in_a_circle_are_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").symlink_to(tmp_path / "model.onnx")

    result = run_here("inspect", tmp_path / "model.onnx", "-o", tmp_path / "model.json")

    assert result.returncode == 2
    assert "model.onnx: cannot be read" in result.stderr
