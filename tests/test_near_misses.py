"""A word or a path that is nearly right: the message suggests the probable one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run_here as run
from models import noise, save, text_model

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path):
    proto = text_model("g (float[4] x) => (float[4] y) { y = Add(x, w) }", {"w": noise(4)})
    save(tmp_path, proto)
    (tmp_path / "model.onnx.data").write_bytes(np.full(64, 0xC4, dtype=np.uint8).tobytes())
    (tmp_path / "manifest.json").write_text("{}")
    return tmp_path


def refusal(*arguments) -> str:
    result = run(*map(str, arguments))
    assert result.returncode == 2
    return " ".join(result.stderr.split())


def test_a_unit_apart_from_its_limit_is_no_model(folder):
    message = refusal("check", folder / "model.onnx", "--max-bytes", "2", "MB")

    assert message.endswith("MB: there is no such model; write a limit as one word, such as --max-bytes 2MB")


def test_a_flag_in_a_budget_file_names_the_metric(folder):
    (folder / "onnxledger.toml").write_text('[[rules]]\nmax-bytes = "2MiB"\n')

    message = refusal("check", folder / "model.onnx", "--config", folder / "onnxledger.toml")

    assert "'max-bytes' is a flag; the key of a rule is metric = 'bytes', beside its limit" in message


def test_a_model_is_no_saved_report(folder):
    message = refusal("show", folder / "model.onnx.data")

    assert message.endswith("not JSON, as a saved report is; of a model `onnxledger inspect` makes one")
    (folder / "cut.json").write_text("{")
    assert refusal("show", folder / "cut.json").endswith("; a command writes one with -o FILE.json")


def test_a_saved_report_is_no_manifest(folder):
    run("inspect", str(folder / "model.onnx"), "--quiet", "-o", str(folder / "report.json"))
    message = refusal("reconcile", folder / "model.onnx", "--against", folder / "report.json")

    assert message.endswith("it is a saved report, which `onnxledger compare` and `show` take")


@pytest.mark.export  # missing files are looked up as PyTorch models too
def test_a_misspelt_path_names_the_one_beside_it(folder):
    assert f"did you mean {folder}/model.onnx?" in refusal("inspect", folder / "models.onnx")
    against = refusal("reconcile", folder / "model.onnx", "--against", folder / "manifesto.json")
    assert f"did you mean {folder}/manifest.json?" in against


def test_a_path_like_nothing_beside_it_suggests_nothing(folder):
    assert "did you mean" not in refusal("inspect", folder / "zzz.bin")


def test_a_models_data_file_names_the_model(folder):
    assert f"it may hold the data of {folder}/model.onnx: name that" in refusal(
        "inspect", folder / "model.onnx.data"
    )


def test_a_data_file_names_the_model_whose_name_it_has_whole(folder):
    (folder / "model2.onnx").write_bytes((folder / "model.onnx").read_bytes())
    (folder / "model2.onnx.data").write_bytes(b"\xc4" * 64)

    assert f"the data of {folder}/model2.onnx: name that" in refusal("inspect", folder / "model2.onnx.data")


def test_a_file_that_is_known_for_what_it_is_holds_no_data(folder):
    (folder / "model.pt").write_bytes(b"PK\x03\x04" + bytes(64))

    message = refusal("inspect", folder / "model.pt")

    assert "is a zip archive, such as torch.save writes" in message
    assert "name that" not in message.partition("export the model to ONNX and name that file")[2]


def test_a_broken_file_beside_a_model_of_another_name_suggests_nothing(folder):
    (folder / "other.onnx").write_bytes(b"\xc4" * 64)

    assert "name that" not in refusal("inspect", folder / "other.onnx")


def test_a_state_dict_asked_for_as_a_pickle_says_how_it_is_written(folder):
    message = refusal("recover", folder / "model.onnx", "-o", folder / "weights.pt")

    assert f"name {folder}/weights.safetensors" in message


def test_a_misspelt_key_names_the_right_one(folder):
    assert "did you mean block?" in refusal("inspect", folder / "model.onnx", "--by", "blocks")
    assert "did you mean" not in refusal("inspect", folder / "model.onnx", "--by", "qqqq")


@pytest.mark.parametrize(("word", "key"), [("operator", "op"), ("layer", "block")])
def test_other_words_for_keys_are_taken(folder, word, key):
    model = str(folder / "model.onnx")

    by_word = run("inspect", model, "--by", word, "--format", "json")

    assert by_word.returncode == 0
    assert by_word.stdout == run("inspect", model, "--by", key, "--format", "json").stdout


@pytest.mark.child
@pytest.mark.parametrize("arguments", [("export", "gpt2", "-o", "out"), ("formula", "gpt2")])
def test_a_package_of_the_users_that_hides_ours_is_named(tmp_path, arguments):
    (tmp_path / "exporter").mkdir()
    (tmp_path / "exporter" / "__init__.py").touch()
    path = os.pathsep.join([str(tmp_path), str(ROOT)])

    result = subprocess.run(
        [sys.executable, "-m", "analyzer", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 2
    assert str(tmp_path / "exporter") in result.stderr
    assert f"hides onnxledger's own, {ROOT / 'exporter'}" in result.stderr


@pytest.mark.export
@pytest.mark.parametrize("source", ["analyzer.nets:build", "analyzer:build"])
def test_a_factory_in_a_package_of_our_name_is_reported(tmp_path, monkeypatch, source):
    (tmp_path / "analyzer").mkdir()
    (tmp_path / "analyzer" / "nets.py").write_text("def build(): ...")
    monkeypatch.chdir(tmp_path)

    message = refusal("export", source, "-o", tmp_path / "out")

    assert f"{tmp_path / 'analyzer'} has the name of onnxledger's own package, {ROOT / 'analyzer'}" in message
