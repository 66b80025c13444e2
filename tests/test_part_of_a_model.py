"""`reconcile --part`: a file that holds one module of a model, beside the checkpoint or the manifest of the whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import run_here
from models import manifest_of, noise, parameter, save, text_model
from safetensors.numpy import save_file

from analyzer.checkpoints import Original
from analyzer.checkpoints.part import take_parts
from analyzer.errors import UsageError
from analyzer.manifest import BatchNorm, save_manifest

WEIGHTS = {
    "encoder.fc.weight": noise(6, 4, seed=1),
    "encoder.fc.bias": noise(6, seed=2),
    "encoder2.fc.weight": noise(6, 4, seed=3),
    "neck.fc.weight": noise(3, 6, seed=4),
    "decoder.fc.weight": noise(4, 6, seed=5),
    "scale": noise(6, seed=6),
}


def file_of(folder: Path, *names: str) -> Path:
    """Write a file of layers one after another, each of whose weights has its name in the whole model."""
    nodes, value = [], "x"
    for number, name in enumerate(names):
        nodes.append(f'h{number} = Gemm<transB = 1>({value}, "{name}.fc.weight")')
        value = f"h{number}"
    if "encoder" in names:
        nodes[0] = nodes[0].replace('weight")', 'weight", "encoder.fc.bias")')
    stored = {
        key: value for key, value in WEIGHTS.items() if key.rpartition(".fc.")[0] in names and ".fc." in key
    }
    width = WEIGHTS[f"{names[-1]}.fc.weight"].shape[0]
    text = f"g (float[n,4] x) => (float[n,{width}] {value}) {{ {' '.join(nodes)} }}"
    return save(folder, text_model(text, stored))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_file(WEIGHTS, tmp_path / "whole.safetensors")
    return tmp_path / "whole.safetensors"


@pytest.mark.parametrize(
    ("held", "parts", "code"),
    [
        (["encoder"], [], 1),
        (["encoder"], ["encoder"], 0),
        (["encoder"], ["encoder2"], 1),
        (["encoder"], ["encoder", "neck"], 1),
        (["encoder", "neck"], ["encoder", "neck"], 0),
        (["encoder", "neck"], ["encoder"], 1),
        (["encoder"], ["encoder.fc"], 0),
    ],
)
def test_a_file_balances_against_exactly_the_modules_that_it_holds(
    tmp_path: Path, checkpoint: Path, held: list[str], parts: list[str], code: int
) -> None:
    options = [word for part in parts for word in ("--part", part)]

    result = run_here(
        "reconcile", file_of(tmp_path, *held), "--against", checkpoint, *options, "--format", "json"
    )

    document = json.loads(result.stdout)
    assert (result.returncode, document["balanced"]) == (code, code == 0)
    assert document["against"].get("part") == (", ".join(parts) or None)


@pytest.mark.parametrize(
    ("held", "says"), [(["encoder", "neck"], True), (["encoder"], True), ([], False)], ids=str
)
def test_a_file_that_lacks_whole_modules_says_with_which_options_it_may_balance(
    tmp_path: Path, checkpoint: Path, held: list[str], says: bool
) -> None:
    whole = {name: value for name, value in WEIGHTS.items() if name != "scale"}
    save_file(whole, checkpoint)
    path = file_of(tmp_path, *(held or ["encoder2"]))
    if not held:  # a value is wrong as well
        save_file({**whole, "encoder2.fc.weight": noise(6, 4, seed=9)}, checkpoint)

    result = run_here("reconcile", path, "--against", checkpoint, "--format", "json")

    found = [each for each in json.loads(result.stdout)["findings"] if each["id"] == "absent-module"]
    assert (result.returncode, bool(found)) == (1, says)
    if says:
        options = found[0]["message"].partition(" compares")[0].split()
        assert options == [word for module in held for word in ("--part", module)]
        assert run_here("reconcile", path, "--against", checkpoint, *options).returncode == 0


NESTED = {
    "net.encoder.fc.weight": noise(6, 4, seed=1),
    "net.encoder.training.0.fc.weight": noise(5, 4, seed=2),
    "net.encoder.training.0.fc.bias": noise(5, seed=3),
    "net.encoder.layers.0.fc.weight": noise(6, 6, seed=4),
    "net.encoder.layers.1.fc.weight": noise(6, 6, seed=5),
    "net.posterior.fc.weight": noise(3, 6, seed=6),
}


def find_absent(folder: Path, lacks: set[str]) -> tuple[str, list[str]]:
    """Reconcile a file without some of the parameters; return the message and the modules that the file lacks."""
    held = [name for name in NESTED if name not in lacks]
    nodes = " ".join(f'y{number} = Relu("{name}")' for number, name in enumerate(held))
    outputs = ", ".join(f"float[n] y{number}" for number in range(len(held)))
    proto = text_model(f"g () => ({outputs}) {{ {nodes} }}", {name: NESTED[name] for name in held})
    save_file(NESTED, folder / "nested.safetensors")
    done = run_here(
        *("reconcile", save(folder, proto), "--against", folder / "nested.safetensors", "--format", "json")
    )
    found = [each for each in json.loads(done.stdout)["findings"] if each["id"] == "absent-module"]
    return (found[0]["message"], found[0]["subjects"]) if found else ("", [])


TRAINING = {"net.encoder.training.0.fc.weight", "net.encoder.training.0.fc.bias"}


@pytest.mark.parametrize(
    ("lacks", "modules"),
    [
        (TRAINING, ["net.encoder.training"]),
        ({*TRAINING, "net.posterior.fc.weight"}, ["net.posterior", "net.encoder.training"]),
        ({"net.encoder.layers.1.fc.weight"}, ["net.encoder.layers.1"]),
        ({"net.encoder.training.0.fc.bias"}, []),
        ({"net.encoder.training.0.fc.bias", "net.posterior.fc.weight"}, []),
        (set(), []),
    ],
)
def test_absent_modules_are_named_at_any_depth(tmp_path: Path, lacks: set[str], modules: list[str]) -> None:
    message, subjects = find_absent(tmp_path, lacks)

    assert subjects == modules
    options = [word for word in message.partition(" compares")[0].split() if word != "--part"]
    assert not modules or {name for name in NESTED if any(name.startswith(each) for each in options)} == {
        name for name in NESTED if name not in lacks
    }


def test_many_parts_are_no_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"net.encoder.layers.{number}.fc.weight": noise(2, seed=number) for number in range(10)}
    for name, value in many.items():
        monkeypatch.setitem(NESTED, name, value)

    message, subjects = find_absent(tmp_path, {"net.encoder.layers.3.fc.weight"})

    assert (message, subjects) == (
        "the file has nothing of 1 module, and all of the others",
        ["net.encoder.layers.3"],
    )


def test_parameters_outside_of_modules_are_in_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NESTED, "net.encoder.scale", noise(2, seed=9))

    assert find_absent(tmp_path, TRAINING) == (
        "the file has nothing of 1 module, and all of the others",
        ["net.encoder.training"],
    )
    assert find_absent(tmp_path, {*TRAINING, "net.encoder.scale"}) == ("", [])


def test_the_first_line_names_the_part(tmp_path: Path, checkpoint: Path) -> None:
    result = run_here("reconcile", file_of(tmp_path, "encoder"), "--against", checkpoint, "--part", "encoder")

    assert " against encoder of " in " ".join(result.stdout.split())


def test_another_value_in_the_part_is_found(tmp_path: Path, checkpoint: Path) -> None:
    path = file_of(tmp_path, "encoder")
    save_file({**WEIGHTS, "encoder.fc.bias": noise(6, seed=9)}, checkpoint)

    assert run_here("reconcile", path, "--against", checkpoint, "--part", "encoder").returncode == 1


def test_an_unknown_part_is_a_usage_error_that_lists_the_modules(tmp_path: Path, checkpoint: Path) -> None:
    result = run_here("reconcile", file_of(tmp_path, "encoder"), "--against", checkpoint, "--part", "enc")

    assert result.returncode == 2
    assert "--part enc: " in result.stderr
    assert "it has decoder, encoder, encoder2, neck" in result.stderr
    assert not result.stdout


def test_a_manifest_has_parts_too(tmp_path: Path) -> None:
    manifest = manifest_of(*(parameter(name, value) for name, value in WEIGHTS.items()))
    save_manifest(manifest, tmp_path / "manifest.json")
    path = file_of(tmp_path, "encoder")

    claims = replace(manifest, source={"part": "encoder"})  # which is for people to read
    save_manifest(claims, tmp_path / "other.json")
    command = ("reconcile", path, "--against", tmp_path / "other.json", "--part", "decoder")
    assert run_here(*command).returncode == 1

    codes = [
        run_here("reconcile", path, "--against", tmp_path / "manifest.json", *options).returncode
        for options in ([], ["--part", "encoder"], ["--part", "decoder"])
    ]

    assert codes == [1, 0, 1]


def test_a_part_has_its_own_names_norms_and_values_and_nothing_of_the_whole() -> None:
    shared = parameter("encoder.w", np.ones(2, np.float32), tied=("decoder.w", "encoder.v"))
    norms = [BatchNorm(f"{name}.bn", 1e-3, None, None, None, None) for name in ("encoder", "decoder")]
    whole = manifest_of(
        shared,
        parameter("decoder.b", np.ones(2, np.float32)),
        batch_norms=tuple(norms),
        values=dict.fromkeys(("encoder.w", "decoder.b"), np.ones(2, np.float32)),
        modules={"encoder": "A", "encoder.bn": "B", "decoder": "C"},
        trace="exported-program",
    )

    part = take_parts(Original(whole), ["decoder"]).manifest

    assert [(each.name, each.tied, each.read) for each in part.parameters] == [
        ("decoder.w", (), None),
        ("decoder.b", (), None),
    ]
    assert [norm.module for norm in part.batch_norms] == ["decoder.bn"]
    assert (set(part.values), set(part.modules), part.trace) == ({"decoder.b"}, {"decoder"}, None)
    with pytest.raises(UsageError, match="it has decoder, encoder"):
        take_parts(Original(whole), ["encoder", "head"])
