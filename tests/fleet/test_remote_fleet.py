"""Remote models: which bytes a survey requests, and which a second survey requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fleets import add, content, survey, weights
from models import external, save, text_model
from servers import CountingServer, serving

from analyzer.errors import UsageError
from analyzer.fleet.find import find_sources
from analyzer.fleet.sql import ask_lake
from analyzer.read.remote import list_models

COUNT = 12


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CountingServer]:
    folder = tmp_path / "kept"
    for number in range(COUNT):
        add(folder, f"m{number}.onnx", weights(number, a=200, b=300, c=200))
    with serving(folder) as found:
        yield found


@pytest.fixture
def listed(server: CountingServer, tmp_path: Path) -> Path:
    path = tmp_path / "urls.txt"
    path.write_text("# models\n" + "".join(f"{server.url(f'm{n}.onnx')}\n" for n in range(COUNT)))
    return path


@pytest.mark.child
def test_little_is_read_of_a_remote_model_and_nothing_of_one_that_has_not_changed(
    server: CountingServer, listed: Path, tmp_path: Path
) -> None:
    first = survey(listed, lake=tmp_path / "lake")
    count_before, sent = len(server.requests), server.sent.total()
    before = content(tmp_path / "lake")

    second = survey(listed, lake=tmp_path / "lake")

    assert (first.read, first.unreadable) == (COUNT, 0)
    assert sent < 0.05 * sum(path.stat().st_size for path in server.folder.iterdir())
    assert (second.read, second.kept) == (0, COUNT)
    assert len(server.requests) - count_before == COUNT
    assert server.sent.total() - sent == COUNT  # one byte each: no payload
    assert content(tmp_path / "lake") == before
    rows = ask_lake(tmp_path / "lake", "SELECT DISTINCT sha256, etag FROM models").rows
    assert rows == [(None, '"one"')]


@pytest.mark.child
def test_another_tag_is_another_version(server: CountingServer, listed: Path, tmp_path: Path) -> None:
    survey(listed, lake=tmp_path / "lake")
    server.switches.etag = '"two"'

    assert survey(listed, lake=tmp_path / "lake").read == COUNT


@pytest.mark.child
def test_what_is_out_of_reach_is_a_row_and_is_tried_again(
    server: CountingServer, listed: Path, tmp_path: Path
) -> None:
    server.switches.statuses["/m3.onnx"] = 503
    first = survey(listed, lake=tmp_path / "lake")
    server.switches.statuses.clear()

    second = survey(listed, lake=tmp_path / "lake")

    assert (first.unreadable, second.unreadable) == (1, 0)
    assert second.read == 1
    survey(listed, lake=tmp_path / "anew")
    assert content(tmp_path / "lake") == content(tmp_path / "anew")


def test_a_store_is_listed_folder_by_folder() -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    for name in ("a/one.onnx", "a/b/two.onnx", "a/readme.md", "c/three.ONNX"):
        store.pipe(f"/listed/{name}", b"x")

    assert list(list_models("memory://listed/a/")) == [
        "memory://listed/a/one.onnx",
        "memory://listed/a/b/two.onnx",
    ]
    assert list(list_models("memory://listed/*/one.onnx")) == ["memory://listed/a/one.onnx"]
    with pytest.raises(UsageError, match=r"no \.onnx file is there"):
        list(list_models("memory://listed/nothing/"))
    with pytest.raises(UsageError, match="cannot be listed"):
        list(list_models("nosuch://bucket/"))


def test_the_hub_is_listed_by_organization_and_by_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    huggingface_hub = pytest.importorskip("huggingface_hub")

    class Hub:
        def list_models(self, author: str) -> list[object]:
            return [types.SimpleNamespace(id=f"{author}/{name}") for name in ("bert", "vit")]

        def list_repo_files(self, repository: str) -> list[str]:
            return ["onnx/model.onnx", "config.json", "model.onnx"]

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)

    assert list(list_models("hf://org/*")) == [
        f"hf://org/{name}/{path}" for name in ("bert", "vit") for path in ("model.onnx", "onnx/model.onnx")
    ]
    assert list(list_models("hf://org/vit")) == ["hf://org/vit/model.onnx", "hf://org/vit/onnx/model.onnx"]


def test_sources_of_every_kind_are_found_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    for name in ("zoo/m10.onnx", "zoo/m2.onnx", "zoo/deep/er/x.onnx", "zoo/.hidden/y.onnx", "other/z.onnx"):
        add((tmp_path / name).parent, Path(name).name, weights(1))
    monkeypatch.chdir(tmp_path)
    Path("names.txt").write_text("zoo/m2.onnx\n\n# a remark\nother\nnames.txt\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("other/z.onnx\nnowhere.onnx\n"))

    def names(*sources: str) -> list[str]:
        return [found.model for found in find_sources(sources)]

    assert names("zoo") == ["zoo/deep/er/x.onnx", "zoo/m2.onnx", "zoo/m10.onnx"]
    assert names("zoo/*.onnx") == ["zoo/m2.onnx", "zoo/m10.onnx"]
    assert names("**/x.onnx") == ["zoo/deep/er/x.onnx"]
    assert names("*/m?.onnx", "zoo/m2.onnx") == ["zoo/m2.onnx"]
    assert names("names.txt") == ["zoo/m2.onnx", "other/z.onnx"]
    assert names("-") == ["other/z.onnx", "nowhere.onnx"]
    assert names("none/*.onnx") == ["none/*.onnx"]
    assert [found.mark for found in find_sources(["nowhere.onnx"])] == ["missing"]
    with pytest.raises(UsageError, match="the name is empty"):
        names("")
    with pytest.raises(UsageError, match="cannot be read"):
        names("no.txt")


@pytest.mark.child
def test_external_data_beside_a_remote_model_is_read_in_ranges_too(
    server: CountingServer, tmp_path: Path
) -> None:
    proto = text_model('g (float[1,8] x) => (float[1,8] y) { y = MatMul(x, "w") }')
    proto.graph.initializer.append(external("w", [8, 8], location="w.bin", length=256))
    save(server.folder, proto, "split.onnx")
    (server.folder / "w.bin").write_bytes(np.arange(64, dtype=np.float32).tobytes())

    survey(server.url("split.onnx"), lake=tmp_path / "lake")

    rows = ask_lake(tmp_path / "lake", "SELECT path, bytes, sha256, etag FROM files ORDER BY path").rows
    assert rows[1] == ("w.bin", 256, None, '"one"')
