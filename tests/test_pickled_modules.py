"""Files of torch.save that hold a whole module, or other objects beside a state dict: read without their code."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pickle
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run_here

from analyzer.checkpoints import Original
from analyzer.errors import SourceError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from exporter import census_source, take_census  # noqa: E402  after the skip
from exporter.quiet import quiet  # noqa: E402

pytestmark = pytest.mark.export

nn = torch.nn


class Net(nn.Module):
    """Net with all that a state dict alone does not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, eps=1e-3), nn.ReLU())
        self.table = nn.Embedding(5, 6)
        self.head = nn.Linear(6, 5, bias=False)
        self.head.weight = self.table.weight
        self.gain = nn.Parameter(torch.rand(6), requires_grad=False)
        self.register_buffer("shift", torch.rand(6))
        self.register_buffer("grid", torch.rand(6), persistent=False)

    def forward(self, image):  # TorchScript reads annotations
        return self.head(self.body(image).mean((2, 3)) * self.gain + self.shift + self.grid)


class Loud:
    """Object whose unpickling would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    made = Net().eval()
    with torch.no_grad():
        for tensor in made.state_dict().values():
            if tensor.is_floating_point():
                tensor.uniform_(0.1, 1)
    return made


def saved(folder: Path, content: object, **how: Any) -> str:
    path = folder / "net.pt"
    torch.save(content, path, **how)
    return str(path)


def described(original: Original) -> Any:
    return dataclasses.replace(original.manifest, source={})


@pytest.mark.parametrize("is_archive", [True, False], ids=["archive", "before 1.6"])
def test_a_whole_module_is_described_as_the_module_itself(tmp_path: Path, net: Any, is_archive: bool) -> None:
    path = saved(tmp_path, net, _use_new_zipfile_serialization=is_archive)

    original = census_source(path)

    assert described(original) == take_census(net, evidence=False)
    assert original.manifest.source["parameters_by"] == "pickled-module"
    assert original.manifest.source["class"] == "Net"
    assert original.weights is not None
    for name, tensor in net.state_dict().items():
        found = original.weights.array(name)
        assert found is not None
        np.testing.assert_array_equal(found, tensor.numpy())
    assert [note for note in original.notes if "no code was run" in note]


@pytest.mark.parametrize(
    "wrap",
    [
        nn.DataParallel,
        lambda net: {"epoch": np.float64(3), "ema": None, "model": net},
        lambda net: {"epoch": 3, "checkpoint": {"net": net, "optimizer": {"lr": 0.1}}},
        lambda net: {"models": [net], "rng": torch.get_rng_state(), "others": {"rng": torch.get_rng_state()}},
    ],
    ids=["parallel", "model", "two levels", "list"],
)
def test_a_module_is_found_in_what_a_training_script_saves(tmp_path: Path, net: Any, wrap: Any) -> None:
    assert described(census_source(saved(tmp_path, wrap(net)))) == take_census(net, evidence=False)


def test_two_modules_are_listed_with_what_to_do(tmp_path: Path, net: Any) -> None:
    with pytest.raises(SourceError, match=r"holds 2 state dicts: a, b; .* as in --part a$"):
        census_source(saved(tmp_path, {"a": net, "b": net}))


def test_several_parts_may_be_state_dicts_of_one_file(tmp_path: Path) -> None:
    path = saved(tmp_path, {name: {"w": torch.rand(2, 3)} for name in ("encoder", "decoder", "critic")})

    original = census_source(path, parts=["encoder", "decoder"])

    assert [each.name for each in original.manifest.parameters] == ["encoder.w", "decoder.w"]
    assert original.manifest.source["part"] == "encoder, decoder"


@pytest.mark.parametrize("shadow", ["numel", "untyped_storage", "detach", "stride"])
def test_attributes_that_a_file_sets_on_a_tensor_are_left_behind(
    tmp_path: Path, shadow: str, net: Any
) -> None:
    tensor = nn.Parameter(torch.rand(2, 3))
    vars(tensor)[shadow] = "not a method"

    original = census_source(saved(tmp_path, {"w": tensor}))

    assert [each.name for each in original.manifest.parameters] == ["w"]


def test_attributes_that_a_file_sets_on_a_mapping_or_a_module_are_left_behind(tmp_path: Path) -> None:
    class Shadowed:
        def __reduce__(self) -> tuple[Any, ...]:
            return OrderedDict, (), dict.fromkeys(("items", "values", "keys", "get"), 3), None, iter(pairs)

    pairs = [("w", torch.rand(2, 3))]
    module = Net()
    vars(module).update(modules=3, named_buffers="x", get_submodule=3)
    vars(module.body[1])["eps"] = "x"

    for content, count in (({"model": Shadowed()}, 1), (module, 6)):
        assert len(census_source(saved(tmp_path, content)).manifest.parameters) == count


def test_a_tiny_file_cannot_ask_for_much_memory() -> None:
    from exporter.pickles import _INERT

    content = opcodes(b"K\x01", b"r\xff\xff\xff\x1f")  # kept at place 536,870,911 of the memo

    assert _INERT.load(io.BytesIO(content)) == 1


def test_tensors_of_one_name_are_not_lost(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="several tensors of one name"):
        census_source(saved(tmp_path, {1: torch.rand(2), "1": torch.rand(2)}))


def test_an_optimizer_s_state_is_no_state_dict(tmp_path: Path, net: Any) -> None:
    optimizer = torch.optim.Adam([parameter for parameter in net.parameters() if parameter.requires_grad])
    net(torch.rand(1, 3, 8, 8)).sum().backward()
    optimizer.step()

    with pytest.raises(SourceError, match="holds no state dict, only param_groups, state"):
        census_source(saved(tmp_path, optimizer.state_dict()))


def test_one_of_several_state_dicts_beside_other_objects_is_named(tmp_path: Path, net: Any) -> None:
    states = [net.state_dict(), net.state_dict()]

    with pytest.raises(
        SourceError, match=r"models\.0, models\.1; .*weights_only=False\)\['models'\]\[0\], 'state.pt'"
    ):
        census_source(saved(tmp_path, {"models": states, "best": np.float64(1)}))


def scripted(folder: Path, net: Any, how: str) -> Path:
    path = folder / "scripted.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = torch.jit.trace(net, torch.rand(1, 3, 8, 8)) if how == "trace" else torch.jit.script(net)
        torch.jit.save(torch.jit.freeze(made) if how == "freeze" else made, path)
    return path


def repacked(path: Path, compression: int, **records: bytes) -> str:
    """Write the archive anew, with other contents of some records."""
    target = path.with_name("repacked.pt")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(target, "w", compression) as made:
        for record in archive.namelist():
            made.writestr(record, records.get(record.rpartition("/")[2], archive.read(record)))
    return str(target)


@pytest.mark.parametrize("compression", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("how", ["script", "trace"])
def test_a_torchscript_archive_has_the_tensors_of_the_module(
    tmp_path: Path, net: Any, how: str, compression: int | None
) -> None:
    path = scripted(tmp_path, net, how)

    original = census_source(str(path) if compression is None else repacked(path, compression))

    assert original.weights is not None
    for name, tensor in net.state_dict().items():
        found = original.weights.array(name)
        assert found is not None, name
        np.testing.assert_array_equal(found, tensor.numpy())
    assert [each.names for each in original.manifest.parameters if each.tied] == [
        ("table.weight", "head.weight")
    ]
    assert [note for note in original.notes if "TorchScript" in note]


def test_a_frozen_torchscript_archive_says_why_it_has_no_names(tmp_path: Path, net: Any) -> None:
    with pytest.raises(SourceError, match=r"without named tensors: torch\.jit\.freeze"):
        census_source(str(scripted(tmp_path, net, "freeze")))


def test_a_tensor_of_an_archive_has_no_more_than_its_record(tmp_path: Path, net: Any) -> None:
    path = scripted(tmp_path, net, "trace")

    with pytest.raises(SourceError, match="not resizable"):
        census_source(repacked(path, zipfile.ZIP_STORED, **{"0": b"\0" * 4}))


def test_a_file_that_lists_no_contents_is_refused_and_not_read_as_unset_memory(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save({"weight": torch.rand(64, 64)}, path, _use_new_zipfile_serialization=False)
    with path.open("rb") as file:
        for _ in range(3):
            pickle.load(file)
        tensors = pickle._Unpickler(file)
        tensors.persistent_load = lambda pid: torch.storage.TypedStorage(
            wrap_storage=torch.UntypedStorage(4 * 64 * 64), dtype=torch.float32, _internal=True
        )
        tensors.load()
        start = file.tell()
    path.write_bytes(path.read_bytes()[:start] + pickle.dumps([], protocol=2))

    with pytest.raises(SourceError, match="lacks the elements of 1 of its tensors' storages; save"):
        census_source(str(path))


def test_a_part_may_be_one_of_several_state_dicts(tmp_path: Path, net: Any) -> None:
    other = {"w": torch.rand(2, 3)}
    path = saved(tmp_path, {"policy": net.state_dict(), "value": other, "best": np.float64(1)})

    assert [each.name for each in census_source(path, parts=["value"]).manifest.parameters] == ["w"]
    policy = census_source(path, parts=["policy"])
    assert {each.name for each in policy.manifest.parameters} >= {"body.0.weight", "gain"}
    assert policy.manifest.source["part"] == "policy"
    with pytest.raises(SourceError, match=r"holds 2 state dicts: policy, value; .* as in --part policy"):
        census_source(path, parts=["body"])


def test_objects_beside_a_state_dict_are_not_made(tmp_path: Path, net: Any) -> None:
    content = {"state_dict": net.state_dict(), "best": np.float64(0.5), "options": Loud(tmp_path / "ran")}

    original = census_source(saved(tmp_path, content))

    assert {"body.0.weight", "body.1.bias", "gain"} <= {
        tensor.name for tensor in original.manifest.parameters
    }
    assert original.manifest.source["parameters_by"] == "names"
    assert not (tmp_path / "ran").exists()


def test_a_module_that_does_something_when_it_is_loaded_does_not(tmp_path: Path, net: Any) -> None:
    loud = Net()
    loud.hook = Loud(tmp_path / "ran")

    original = census_source(saved(tmp_path, loud))

    assert described(original) == take_census(loud, evidence=False)
    assert not (tmp_path / "ran").exists()


def opcodes(*parts: bytes) -> bytes:
    return b"\x80\x02" + b"".join(parts) + b"."


def name(module: str, attribute: str) -> bytes:
    return b"c" + f"{module}\n{attribute}\n".encode()


def text(content: str) -> bytes:
    return b"X" + len(content).to_bytes(4, "little") + content.encode()


HOSTILE = {
    "call": opcodes(name("os", "system"), text("touch ran"), b"\x85R"),
    "attribute of a function": opcodes(
        name("torch._utils", "_rebuild_tensor_v2"), b"N}", text("__defaults__"), b"Ns", b"\x86b"
    ),
    "attribute of a class": opcodes(name("collections", "OrderedDict"), b"N}", text("get"), b"Ns", b"\x86b"),
    "state of a class that is not there": opcodes(name("model", "Net"), b"N}", text("kind"), b"Ns", b"\x86b"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_pickle_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, net: Any, how: str
) -> None:
    from exporter.pickles import _INERT

    monkeypatch.chdir(tmp_path)
    before = torch._utils._rebuild_tensor_v2.__defaults__, OrderedDict.get

    with contextlib.suppress(AttributeError, TypeError, pickle.UnpicklingError):
        _INERT.load(io.BytesIO(HOSTILE[how]))

    assert not Path("ran").exists()
    assert (torch._utils._rebuild_tensor_v2.__defaults__, OrderedDict.get) == before
    assert described(census_source(saved(tmp_path, net))) == take_census(net, evidence=False)


def test_a_module_that_holds_itself_is_refused(tmp_path: Path) -> None:
    endless = Net()
    endless.body.add_module("again", endless)

    with pytest.raises(SourceError, match="more modules than any model has"):
        census_source(saved(tmp_path, endless))


def test_an_export_balances_against_the_whole_module(tmp_path: Path, net: Any) -> None:
    with quiet():
        torch.onnx.export(net, (torch.rand(2, 3, 8, 8),), tmp_path / "net.onnx", dynamo=False)
    path = saved(tmp_path, net)

    result = run_here("reconcile", tmp_path / "net.onnx", "--against", path, "--content", "full")

    assert result.returncode == 0, result.stdout
    assert "balanced, unexplained 0" in result.stdout
    assert f"{path}: holds a whole " in result.stderr
    assert "eps" not in result.stderr  # the module has it, and nothing is assumed
