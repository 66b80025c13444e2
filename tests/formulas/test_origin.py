"""SOURCE is recognized by its contents: a config, a checkpoint or a manifest; other files are not read."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from commands import run_here

from analyzer.errors import FormulaError, OnnxLedgerError, UsageError
from analyzer.formulas.counting import count_config
from analyzer.formulas.family import family_names, load_family
from analyzer.formulas.origin import SourceFiles, family_config, find_files

BERT = {"model_type": "bert"}
MANIFEST = {"kind": "onnxledger-manifest", "schema_version": 1}
HEADER = b"{}      "


def write(path: Path, content: Any) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Write a safetensors file without tensors."""
    return write(tmp_path / "model.safetensors", len(HEADER).to_bytes(8, "little") + HEADER)


# sources that are found


def test_a_config_file_is_a_config_whatever_its_name(tmp_path: Path) -> None:
    for name in ("config.json", "other.json", "noend", "manifest.txt"):
        path = write(tmp_path / name, BERT)
        assert find_files(str(path)) == SourceFiles(str(path), BERT, path)


def test_a_folder_is_its_config_and_its_manifest(tmp_path: Path) -> None:
    config = write(tmp_path / "config.json", BERT)
    assert find_files(str(tmp_path)) == SourceFiles(str(tmp_path), BERT, config)

    manifest = write(tmp_path / "manifest.json", MANIFEST)
    assert find_files(str(tmp_path)) == SourceFiles(str(tmp_path), BERT, config, manifest)

    config.unlink()
    assert find_files(str(tmp_path)) == SourceFiles(str(tmp_path), parameters=manifest)


def test_a_checkpoint_and_a_manifest_have_the_config_beside_them(tmp_path: Path, checkpoint: Path) -> None:
    manifest = write(tmp_path / "any.json", MANIFEST)
    index = write(tmp_path / "some.json", {"weight_map": {"a": "model.safetensors"}})
    for path in (checkpoint, manifest, index):
        assert find_files(str(path)) == SourceFiles(str(path), parameters=path)

    config = write(tmp_path / "config.json", BERT)
    for path in (checkpoint, manifest, index):
        found = find_files(str(path))
        assert found == SourceFiles(str(path), BERT, config, path)
        assert found.paths == (config, path)
        assert found.is_known


@pytest.mark.parametrize("name", ["gpt2", "org/model", "package.module:factory", "no/such/file.json", "a b"])
def test_what_is_no_path_is_a_name_and_nothing_more(name: str) -> None:
    found = find_files(name)

    assert found == SourceFiles(name)
    assert not found.is_known
    assert found.paths == ()


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "config.json", BERT)

    assert find_files("~/config.json").config == BERT
    assert find_files("~").config == BERT


def test_a_link_to_a_config_is_the_config(tmp_path: Path) -> None:
    write(tmp_path / "blob", BERT)
    link = tmp_path / "config.json"
    link.symlink_to(tmp_path / "blob")

    assert find_files(str(link)).config == BERT
    assert find_files(str(tmp_path)).config == BERT


@pytest.mark.parametrize("key", family_names())
def test_a_family_by_its_name_is_the_config_of_its_defaults(key: str) -> None:
    config = family_config(key)
    assert config is not None

    assert config["model_type"] in load_family(key).model_types
    formula = count_config(config)
    assert formula is not None
    assert formula.key == key


@pytest.mark.parametrize("name", ["", "Bert", "bert.toml", "../families/bert", "resnet", "bert/", "\x00"])
def test_no_other_name_is_a_familys(name: str) -> None:
    assert family_config(name) is None


# refusals


def refused(source: object, error: type[OnnxLedgerError], message: str) -> None:
    """Check that the library and the command both refuse a source, the command in one line."""
    with pytest.raises(error) as raised:
        find_files(str(source))
    answer = run_here("formula", source)

    assert message in str(raised.value)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert message in answer.stderr
    assert "internal error" not in answer.stderr


def test_an_empty_name_is_refused() -> None:
    refused("", UsageError, "the name is empty")


def test_a_model_is_recognized_by_its_config(tmp_path: Path) -> None:
    path = write(tmp_path / "model.onnx", b"")

    refused(path, UsageError, f"name its config first, and the model with --against {path}")


def test_a_folder_without_a_config_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    assert checkpoint.parent == tmp_path

    refused(tmp_path, UsageError, "the folder holds no config.json")


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3_000, "x" * 100_000])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    refused(name, UsageError, "neither a path nor the name of a model: File name too long")


def test_the_home_of_nobody_is_refused() -> None:
    refused("~no-such-user-here/config.json", UsageError, "neither a path nor the name of a model")


def test_broken_links_are_refused_and_not_looked_up_on_a_hub(tmp_path: Path) -> None:
    loop, one, other, lost = (tmp_path / name for name in ("loop.json", "one", "other", "lost"))
    loop.symlink_to(loop)
    one.symlink_to(other)
    other.symlink_to(one)
    lost.symlink_to(tmp_path / "nowhere")
    for path in (loop, one, lost):
        refused(path, FormulaError, "no such file, or not readable")


def test_a_folder_or_a_loop_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    refused(tmp_path, UsageError, "the folder holds no config.json")

    (tmp_path / "config.json").rmdir()
    (tmp_path / "config.json").symlink_to("config.json")
    refused(tmp_path, UsageError, "the folder holds no config.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize(
    "name", ["pipe", "config.json", "manifest.json", "model.safetensors", "x.index.json"]
)
def test_a_pipe_is_not_opened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)  # opening it would block for ever

    refused(tmp_path / name, FormulaError, "not readable")
    with pytest.raises(UsageError, match=r"holds no config\.json"):
        find_files(str(tmp_path))


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_a_device_is_not_opened(device: str) -> None:
    if not Path(device).exists():
        pytest.skip("the system has no such device")

    refused(device, FormulaError, "not readable")


@pytest.mark.parametrize("start", [b"", b"{", b'{"kind": "onnxledger-manifest"', b"[" * 4096])
@pytest.mark.parametrize("name", ["config.json", "noend", "huge.index.json"])
def test_a_file_of_a_gigabyte_that_is_no_checkpoint_is_not_read(
    tmp_path: Path, name: str, start: bytes
) -> None:
    path = write(tmp_path / name, start)
    os.truncate(path, 1 << 30)
    tracemalloc.start()
    try:
        refused(path, FormulaError, "is too large to be a config")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1 << 26


def test_a_config_beside_a_checkpoint_is_refused_like_any_other(tmp_path: Path, checkpoint: Path) -> None:
    write(tmp_path / "config.json", b"{")

    refused(checkpoint, FormulaError, "config.json: not JSON")
    refused(tmp_path, FormulaError, "config.json: not JSON")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_an_invalid_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "manifest.json", content)
    answer = run_here("formula", path)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"onnxledger: {path}: ")
    assert answer.stderr.count("\n") == 1
    assert "internal error" not in answer.stderr
