"""Local files: which may be opened, which bytes are read, and how files that are no ONNX model are described."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoding import block, integer

import analyzer.read.source
from analyzer.errors import ExternalDataError, ModelReadError
from analyzer.model.ranges import check_location, is_url
from analyzer.read.source import HEAD, LocalFile, describe_kind, open_source


def model(folder: Path, content: bytes = b"model") -> LocalFile:
    """Return the model file whose external data is looked up beside it."""
    (folder / "model.onnx").write_bytes(content)
    return LocalFile.at(folder / "model.onnx")


def sibling(folder: Path, location: str) -> Path:
    return Path(model(folder).sibling(location).key)


# reading


@pytest.mark.parametrize(("offset", "length"), [(0, 10), (3, 4), (8, 100), (10, 5), (0, 0)])
def test_ranges_are_read_up_to_the_end_of_the_file(tmp_path, offset, length):
    content = b"0123456789"

    assert model(tmp_path, content).read(offset, length) == content[offset : offset + length]


def test_several_ranges_are_read_in_the_requested_order(tmp_path):
    assert model(tmp_path, b"0123456789").read_ranges([(8, 2), (0, 3), (2, 0)]) == [b"89", b"012", b""]


@pytest.mark.parametrize("length", [0, 10, 1 << 16, (1 << 16) + 1, 200_000])
@pytest.mark.parametrize("offset", [0, 1, 4097])
def test_view_is_the_same_bytes_whether_copied_or_mapped(tmp_path, offset, length):
    content = np.arange(300_000, dtype="u4").view(np.uint8)[:300_000].tobytes()
    source = model(tmp_path, content)

    found = source.view(offset, length)

    assert found.tobytes() == source.read(offset, length) == content[offset : offset + length]


def test_large_view_is_mapped_and_cannot_be_written(tmp_path):
    found = model(tmp_path, bytes(200_000)).view(0, 200_000)

    assert not found.flags.writeable
    assert not found.flags.owndata


@pytest.mark.parametrize("length", [5, 100_000])
def test_file_that_changed_is_not_read(tmp_path, length):
    source = model(tmp_path, bytes(200_000))
    (tmp_path / "model.onnx").write_bytes(bytes(200_001))

    for call in (
        lambda: source.read(0, length),
        lambda: source.view(0, length),
        lambda: source.read_ranges([(0, length)]),
        source.check,
    ):
        with pytest.raises(ModelReadError, match="changed while it was read; run again"):
            call()


def test_file_that_was_replaced_by_another_of_its_size_is_noticed(tmp_path):
    source = model(tmp_path, b"before")
    (tmp_path / "other").write_bytes(b"after!")
    (tmp_path / "other").replace(tmp_path / "model.onnx")

    with pytest.raises(ModelReadError, match="changed while it was read"):
        source.check()


def test_file_that_is_gone_is_an_error_and_no_crash(tmp_path):
    source = model(tmp_path)
    (tmp_path / "model.onnx").unlink()

    with pytest.raises(ModelReadError, match=r"model\.onnx: cannot be read: No such file"):
        source.read(0, 1)
    with pytest.raises(ModelReadError, match="cannot be read any more"):
        source.check()


# reading a file that stays open


@pytest.fixture
def descriptors(monkeypatch):
    """Return a function that lists the descriptors that were opened and not closed."""
    opened: list[int] = []
    real_open, real_close = os.open, os.close

    def count_open(*arguments: Any) -> int:
        descriptor = real_open(*arguments)
        opened.append(descriptor)
        return descriptor

    def count_close(descriptor: int) -> None:
        real_close(descriptor)
        opened.remove(descriptor)

    monkeypatch.setattr(analyzer.read.source.os, "open", count_open)
    monkeypatch.setattr(analyzer.read.source.os, "close", count_close)
    return opened


def test_file_and_its_siblings_are_opened_once_and_closed_at_the_end(tmp_path, descriptors):
    source = model(tmp_path, b"0123456789")
    (tmp_path / "w.bin").write_bytes(b"weights")

    with source.kept_open():
        beside = source.sibling("w.bin")
        with beside.kept_open():
            read = [source.read(0, 2), beside.read(0, 2), source.sibling("w.bin").read(2, 3)]
        assert (read, len(descriptors)) == ([b"01", b"we", b"igh"], 2)
        assert source.read(8, 9) == b"89"

    assert descriptors == []
    assert source.read(0, 1) == b"0"
    assert descriptors == []


def test_file_that_is_written_to_while_it_is_open_is_not_read_on(tmp_path, descriptors):
    large = b"before" * 200_000
    source = model(tmp_path, large)

    with source.kept_open():
        source.read(0, 1)
        before = source.path.stat()
        (tmp_path / "model.onnx").write_bytes(b"afterwards")
        with pytest.raises(ModelReadError, match="changed while it was read"):
            source.read(0, 1)
        (tmp_path / "model.onnx").write_bytes(large)
        os.utime(source.path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert source.read(0, 1) == b"b"

    assert descriptors == []


def test_small_file_that_is_written_to_while_it_is_open_is_read_as_it_was_and_noticed_at_the_end(
    tmp_path, descriptors
):
    source = model(tmp_path, b"before")
    read = []

    def write_while_open() -> None:
        with source.kept_open():
            read.append(source.read(0, 1))
            (tmp_path / "model.onnx").write_bytes(b"after!")
            read.extend((source.read(1, 5), source.view(1, 5).tobytes(), *source.read_ranges([(1, 5)])))

    with pytest.raises(ModelReadError, match="changed while it was read"):
        write_while_open()
    assert b"".join(read) == b"before" + b"before"[1:] * 2
    assert descriptors == []
    with pytest.raises(ModelReadError, match="changed while it was read"):
        source.read(0, 1)


def test_small_files_of_one_model_are_in_memory_as_far_as_there_is_room(tmp_path):
    source = model(tmp_path)
    (tmp_path / "large.bin").write_bytes(bytes(900_000))
    (tmp_path / "more.bin").write_bytes(bytes(900_000))

    with source.kept_open():
        large, more = source.sibling("large.bin"), source.sibling("more.bin")
        large.read(0, 1), more.read(0, 1)
        contents = [large.view(0, 900_000), more.view(0, 900_000)]
        assert (large.is_in_memory, more.is_in_memory) == (True, False)

    assert [each.tobytes() for each in contents] == [bytes(900_000)] * 2
    assert not large.is_in_memory


def test_file_that_is_replaced_while_it_is_open_is_noticed_at_the_end(tmp_path, descriptors):
    source = model(tmp_path, b"before")
    (tmp_path / "other").write_bytes(b"after!")

    def replace_while_open() -> bytes:
        with source.kept_open():
            source.read(0, 1)
            (tmp_path / "other").replace(tmp_path / "model.onnx")
            return source.read(0, 6)

    with pytest.raises(ModelReadError, match="changed while it was read"):
        replace_while_open()
    assert descriptors == []


def test_artifact_of_many_files_keeps_few_of_them_open(tmp_path, descriptors):
    source = model(tmp_path)
    for number in range(100):
        (tmp_path / f"{number}.bin").write_bytes(bytes([number]))

    with source.kept_open():
        read = [source.sibling(f"{number}.bin").read(0, 1) for number in range(100)]
        assert 1 < len(descriptors) <= 64

    assert b"".join(read) == bytes(range(100))
    assert descriptors == []


def test_copy_for_another_process_opens_the_file_itself(tmp_path):
    source = model(tmp_path, b"0123456789")

    with source.kept_open():
        source.read(0, 1)
        copied = pickle.loads(pickle.dumps(source))

    assert (copied, copied.read(3, 2)) == (source, b"34")


# opening


@pytest.mark.parametrize(
    "location",
    ["https://host/model.onnx", "hf://me/model/model.onnx", "s3://b/k", "file:///m", "HTTP://H/x", "a+b://c"],
)
def test_urls_are_distinguished_from_paths(location):
    assert is_url(location)


@pytest.mark.parametrize(
    "location", ["model.onnx", "/a/b", "C:\\models\\m.onnx", "a:b", "://x", "a b://c", "./a://b"]
)
def test_paths_are_no_urls(location):
    assert not is_url(location)


def test_file_url_is_the_file_itself(tmp_path):
    (tmp_path / "my model.onnx").write_bytes(b"content")

    source = open_source(f"file://{tmp_path}/my%20model.onnx")

    assert (source.is_remote, source.key) == (False, str((tmp_path / "my model.onnx").resolve()))


def test_file_url_of_another_host_is_refused():
    with pytest.raises(ModelReadError, match="names no local file"):
        open_source("file://elsewhere/model.onnx")


def test_link_is_read_as_what_it_leads_to(tmp_path):
    model(tmp_path, b"content")
    (tmp_path / "link.onnx").symlink_to("model.onnx")

    source = LocalFile.at(tmp_path / "link.onnx")

    assert (Path(source.key).name, source.read(0, 7)) == ("model.onnx", b"content")


@pytest.mark.parametrize("name", ["absent.onnx", "a\0b.onnx", "x" * 5000])
def test_what_is_not_there_is_refused_by_its_name(tmp_path, name):
    with pytest.raises(ModelReadError, match="cannot be read"):
        LocalFile.at(tmp_path / name)


def test_link_to_itself_is_refused(tmp_path):
    (tmp_path / "loop.onnx").symlink_to("loop.onnx")

    with pytest.raises(ModelReadError, match=r"loop\.onnx: cannot be read"):
        LocalFile.at(tmp_path / "loop.onnx")


def test_folder_is_refused(tmp_path):
    with pytest.raises(ModelReadError, match=r"is a folder; name the \.onnx file inside it"):
        LocalFile.at(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipe_is_refused_without_opening_it(tmp_path):
    os.mkfifo(tmp_path / "model.onnx")

    with pytest.raises(ModelReadError, match=r"\[not-onnx\] is not a regular file"):
        LocalFile.at(tmp_path / "model.onnx")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_device_is_refused():
    with pytest.raises(ModelReadError, match=r"\[not-onnx\] is not a regular file"):
        LocalFile.at(Path("/dev/zero"))


# permitted places of external data


def hub_cache(folder: Path) -> Path:
    """Make a snapshot of a hub cache, whose files are links into its blob store."""
    blobs, snapshot = folder / "hub" / "blobs", folder / "hub" / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "sha").write_bytes(bytes(16))
    (snapshot / "model.onnx.data").symlink_to("../../blobs/sha")
    return snapshot


def test_file_beside_the_model_is_located(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(5))

    found = model(tmp_path).sibling("w.bin")

    assert (Path(found.key), found.nbytes) == ((tmp_path / "w.bin").resolve(), 5)


def test_link_within_the_folder_is_followed(tmp_path):
    (tmp_path / "w.bin").touch()
    (tmp_path / "link.bin").symlink_to("w.bin")

    assert sibling(tmp_path, "link.bin") == (tmp_path / "w.bin").resolve()


def test_folder_that_is_itself_a_link_is_no_escape(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "w.bin").touch()
    (tmp_path / "link").symlink_to("real")

    assert sibling(tmp_path / "link", "w.bin").name == "w.bin"


def test_hub_cache_may_link_to_its_own_blobs(tmp_path):
    snapshot = hub_cache(tmp_path)

    assert sibling(snapshot, "model.onnx.data") == (tmp_path / "hub" / "blobs" / "sha").resolve()


def test_hub_cache_may_link_to_its_own_blobs_from_a_folder_below(tmp_path):
    snapshot = hub_cache(tmp_path)
    (snapshot / "onnx").mkdir()
    (snapshot / "onnx" / "model.onnx.data").symlink_to("../../../blobs/sha")

    assert sibling(snapshot / "onnx", "model.onnx.data").name == "sha"


def test_hub_cache_may_not_link_elsewhere(tmp_path):
    snapshot = hub_cache(tmp_path)
    (tmp_path / "hub" / "refs").write_bytes(b"secret")
    (snapshot / "evil.data").symlink_to("../../refs")

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\]"):
        sibling(snapshot, "evil.data")


def test_hub_blobs_may_not_be_named_directly(tmp_path):
    snapshot = hub_cache(tmp_path)

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\]"):
        sibling(snapshot, "../../blobs/sha")


def test_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").touch()
    (tmp_path / "model" / "w.bin").symlink_to("../secret")

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\].* is a symbolic link.* in place of"):
        sibling(tmp_path / "model", "w.bin")


def test_file_behind_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "w.bin").touch()
    (tmp_path / "model" / "data").symlink_to("../secrets")

    with pytest.raises(
        ExternalDataError, match=r"^\[external-escapes\].* or lies behind one, that leads outside"
    ):
        sibling(tmp_path / "model", "data/w.bin")


def test_links_in_a_circle_are_missing_data_and_no_crash(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(ExternalDataError, match=r"^\[external-(missing|escapes)\]"):
        sibling(tmp_path, "a")


def test_sibling_folder_whose_name_begins_alike_is_outside(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model-secret").touch()

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\]"):
        sibling(tmp_path / "model", "../model-secret")


@pytest.mark.parametrize(
    "location", ["", "/etc/hostname", "a\\b", "hf://a/b", "w\0.bin", "C:w.bin", "C:/w.bin"]
)
def test_location_that_is_no_relative_path_is_refused(tmp_path, location):
    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\].*is not a relative path"):
        check_location(location)
    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\].*is not a relative path"):
        sibling(tmp_path, location)


def test_location_that_is_not_there_is_missing_data(tmp_path):
    with pytest.raises(ExternalDataError, match=r"^\[external-missing\] 'absent\.bin' is not there"):
        sibling(tmp_path, "absent.bin")


def test_location_of_any_length_is_missing_data_and_no_crash(tmp_path):
    with pytest.raises(ExternalDataError, match=r"^\[external-missing\]"):
        sibling(tmp_path, "w" * 5000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipe_is_never_opened_as_external_data(tmp_path):
    os.mkfifo(tmp_path / "w.bin")

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\].*is not a regular file"):
        sibling(tmp_path, "w.bin")


def test_folder_is_no_data(tmp_path):
    (tmp_path / "data").mkdir()

    with pytest.raises(ExternalDataError, match="is not a regular file"):
        sibling(tmp_path, "data")


@pytest.mark.parametrize("location", ["model.onnx", "./model.onnx", "link.onnx"])
def test_the_model_itself_is_no_external_data(tmp_path, location):
    (tmp_path / "link.onnx").symlink_to("model.onnx")

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\].*is the model file itself"):
        sibling(tmp_path, location)


# files that are no ONNX model are described by their kind


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid", "run `git lfs pull`"),
        (b"\x1f\x8b\x08\0", "compressed with gzip; unpack it first"),
        (b"BZh91AY", "compressed with bzip2"),
        (b"\xfd7zXZ\x00\x00", "compressed with xz"),
        (b"\x28\xb5\x2f\xfd\x04", "compressed with zstd"),
        (b"PK\x03\x04\x14", "to compare: `onnxledger reconcile MODEL.onnx --against` this file"),
        (b"\x80\x02}q\0", "a Python pickle, which is never loaded here"),
        (b"\x80\x05\x95\0", "a Python pickle, which is never loaded here"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file, such as Keras writes"),
        (b"GGUF\3\0\0\0", "a GGUF file"),
        (b"\x7fELF\2\1", "a program"),
        (b"\x89PNG\r\n", "a picture"),
        (b"ir_version: 8\ngraph {", "an ONNX model in text form"),
        (b"\x18\0\0\0ORTM", "onnxruntime's own format (.ort)"),
        (b"\x1c\0\0\0TFL3", "a TFLite model"),
        (b'\x40\x01\0\0\0\0\0\0{"w":', "a safetensors file"),
        (b"<!DOCTYPE html><html>", "a web page or XML"),
        (b"\n  <?xml version", "a web page or XML"),
        (b'{"ir_version": 8}', "JSON"),
        (b"# just a README", "a text file"),
        (b"import torch", "Python source; export the model that it makes"),
        (b'"""A net."""', "Python source"),
        (b"from torch import nn", "Python source"),
    ],
)
def test_each_kind_is_named_with_what_to_do_about_it(head, words):
    found = describe_kind(head[:HEAD])

    assert found is not None
    assert words in found
    assert ";" in found


@pytest.mark.parametrize(
    "head",
    [b"", b"\x08", b"\0" * HEAD, b"plain words", integer(1, 8) + block(2, "pytorch") + block(7, bytes(40))],
)
def test_anything_else_is_not_named(head):
    assert describe_kind(head[:HEAD]) is None
