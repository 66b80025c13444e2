"""Remote files: siblings, changes, fsspec filesystems, and missing packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from servers import CountingServer, serving

from analyzer.errors import ExternalDataError, MissingExtraError, ModelReadError
from analyzer.model.ranges import Traffic
from analyzer.read.remote import STEP, RemoteFile, open_remote, shown
from analyzer.read.source import LocalFile, open_source

CONTENT = bytes(range(256)) * 400
WEIGHTS = b"w" * 1000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CountingServer]:
    folder = tmp_path / "served"
    (folder / "models" / "sub").mkdir(parents=True)
    (folder / "models" / "model.onnx").write_bytes(CONTENT)
    (folder / "models" / "model.onnx.data").write_bytes(WEIGHTS)
    (folder / "models" / "sub" / "my weights").write_bytes(WEIGHTS)
    (folder / "secret").write_bytes(WEIGHTS)
    with serving(folder) as serving_server:
        yield serving_server


@pytest.fixture
def model(server: CountingServer) -> RemoteFile:
    return open_remote(server.url("models/model.onnx"))


@pytest.fixture
def memory() -> Iterator[str]:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe({"/models/model.onnx": CONTENT, "/models/model.onnx.data": WEIGHTS, "/secret": WEIGHTS})
    yield "memory://models/model.onnx"
    filesystem.rm("/models", recursive=True)
    filesystem.rm("/secret")


def path_of(server: CountingServer) -> Path:
    return server.folder / "models" / "model.onnx"


# reading


def test_opening_is_one_request_that_brings_the_first_bytes(server, model):
    head = model.read(0, STEP)

    assert (model.nbytes, head) == (len(CONTENT), CONTENT[:STEP])
    assert [(request.method, request.range) for request in server.requests] == [
        ("GET", f"bytes=0-{STEP - 1}")
    ]


def test_only_the_requested_ranges_are_sent(server, model):
    bodies = model.read_ranges([(50_000, 10), (90_000, 20)])

    assert bodies == [CONTENT[50_000:50_010], CONTENT[90_000:90_020]]
    assert server.sent.total() == STEP + 30


def test_traffic_is_what_the_server_counted(server, model):
    weights = model.sibling("model.onnx.data")
    model.read_ranges([(offset, 7) for offset in range(5_000, 100_000, 1_000)])
    weights.read(500, 100)
    model.check()
    weights.check()

    assert model.traffic == weights.traffic == Traffic(len(server.requests), server.sent.total())


@pytest.mark.parametrize(
    ("offset", "length"), [(len(CONTENT) - 5, 10), (len(CONTENT), 10), (len(CONTENT) + 9, 1)]
)
def test_a_range_ends_where_the_file_ends(model, offset, length):
    assert model.read(offset, length) == CONTENT[offset : offset + length]


def test_empty_ranges_cause_no_request(server, model):
    assert model.read_ranges([]) == []
    assert model.read_ranges([(50_000, 0)]) == [b""]
    assert len(server.requests) == 1


def test_a_view_is_an_array_that_cannot_be_written(model):
    view = model.view(50_000, 4)

    assert view.tobytes() == CONTENT[50_000:50_004]
    assert not view.flags.writeable


def test_a_view_beyond_the_end_is_an_error(model):
    with pytest.raises(ModelReadError, match=r"model\.onnx: ends before byte 102,410"):
        model.view(len(CONTENT) - 10, 20)


def test_an_empty_file_has_no_bytes(server):
    path_of(server).write_bytes(b"")

    model = open_remote(server.url("models/model.onnx"))
    model.check()

    assert (model.nbytes, model.read(0, 10)) == (0, b"")


# changes


def test_a_new_etag_is_noticed_with_the_first_answer_that_has_it(server, model):
    server.switches.etag = '"two"'

    with pytest.raises(ModelReadError, match="changed while it was read; run again"):
        model.read(50_000, 10)


def test_a_new_size_is_noticed_with_the_first_answer_that_has_it(server, model):
    path_of(server).write_bytes(CONTENT + b"!")

    with pytest.raises(ModelReadError, match="changed while it was read; run again"):
        model.read(50_000, 10)


def test_a_file_that_shrank_below_the_range_is_a_change(server, model):
    path_of(server).write_bytes(CONTENT[:40_000])

    with pytest.raises(ModelReadError, match="changed while it was read; run again"):
        model.read(50_000, 10)


def test_without_an_etag_the_date_shows_a_change(server):
    server.switches.etag, server.switches.modified = None, "Sat, 21 Nov 2026 10:00:00 GMT"
    model = open_remote(server.url("models/model.onnx"))
    server.switches.modified = "Sat, 21 Nov 2026 10:00:01 GMT"

    with pytest.raises(ModelReadError, match="changed while it was read"):
        model.check()


def test_without_etag_and_date_the_first_bytes_show_a_change(server):
    server.switches.etag = None
    model = open_remote(server.url("models/model.onnx"))
    path_of(server).write_bytes(CONTENT[::-1])

    with pytest.raises(ModelReadError, match="changed while it was read"):
        model.check()


def test_a_date_may_move_under_one_etag(server):
    server.switches.modified = "Sat, 21 Nov 2026 10:00:00 GMT"
    model = open_remote(server.url("models/model.onnx"))
    server.switches.modified = "Sat, 21 Nov 2026 10:00:01 GMT"

    model.check()


# siblings


@pytest.mark.parametrize("location", ["model.onnx.data", "./model.onnx.data", "sub/../model.onnx.data"])
def test_a_sibling_is_looked_at_with_one_request(server, model, location):
    weights = model.sibling(location)

    assert (weights.nbytes, weights.name) == (1000, server.url("models/model.onnx.data"))
    assert len(server.requests_for("models/model.onnx.data")) == 1
    assert server.sent["/models/model.onnx.data"] == 1


def test_a_sibling_may_be_in_a_folder_and_have_a_space_in_its_name(server, model):
    assert model.sibling("sub/my weights").read(0, 3) == b"www"


@pytest.mark.parametrize(
    "location",
    [
        "",
        ".",
        "..",
        "../secret",
        "sub/../../secret",
        "/secret",
        "//host/secret",
        "\\secret",
        "http://127.0.0.1/secret",
        "file:///etc/passwd",
        "%2e%2e/secret",
        "sub/%2e%2e/%2e%2e/secret",
        "..%2fsecret",
        "?secret",
        "model.onnx.data?x=1",
        "model.onnx.data#x",
        "sub/..",
        "model.onnx",
        "sub/../model.onnx",
        "a\0b",
    ],
)
def test_no_location_leads_out_of_the_folder(server, model, memory, location):
    for file in (model, open_remote(memory)):
        with pytest.raises(ExternalDataError, match=r"^\[external-escapes\] location "):
            file.sibling(location)
    assert len(server.requests) == 1


def test_the_model_is_no_sibling_of_its_own_however_its_url_is_spelled(server):
    path_of(server).rename(path_of(server).with_name("my(1) model.onnx"))
    model = open_remote(server.url("models/my(1) model.onnx") + "#part")

    with pytest.raises(ExternalDataError, match="is the model file itself"):
        model.sibling("my(1) model.onnx")


def test_a_sibling_that_is_not_there_is_missing(server, model):
    with pytest.raises(ExternalDataError, match=r"^\[external-missing\] location 'other'.*404 Not Found"):
        model.sibling("other")


def test_the_query_of_the_model_goes_to_its_siblings(server):
    model = open_remote(server.url("models/model.onnx?token=1"))

    model.sibling("model.onnx.data")

    assert [request.query for request in server.requests] == ["token=1", "token=1"]


# names


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://token@host/m.onnx", "https://host/m.onnx"),
        ("HTTPS://token@host/m.onnx", "HTTPS://host/m.onnx"),
        ("https://host?token=1", "https://host"),
        ("ftp://user:word@host/a/m.onnx", "ftp://host/a/m.onnx"),
        ("abfs://container@account/m.onnx", "abfs://container@account/m.onnx"),
        ("s3://bucket/a@b/m.onnx", "s3://bucket/a@b/m.onnx"),
        ("models/m.onnx", "models/m.onnx"),
    ],
)
def test_what_may_be_secret_is_not_shown(url, plain):
    assert shown(url) == plain


def test_no_message_repeats_a_secret(server):
    url = server.url("models/model.onnx?token=SECRET").replace("//", "//user:SECRET@")
    model = open_remote(url)
    server.switches.statuses["/models/model.onnx"] = 500

    with pytest.raises(ModelReadError) as caught:
        model.check()

    assert "SECRET" not in repr(model) + model.name + model.key + str(caught.value)
    assert model.name == server.url("models/model.onnx")


def test_two_queries_are_two_keys(server):
    one, two = (open_remote(server.url(f"models/model.onnx?file={name}")) for name in "ab")

    assert one.key != two.key


# filesystems


def test_a_file_in_memory_is_read_through_fsspec(memory):
    model = open_remote(memory)

    assert (model.nbytes, model.name) == (len(CONTENT), memory)
    assert model.read_ranges([(50_000, 10), (0, 4)]) == [CONTENT[50_000:50_010], CONTENT[:4]]
    assert model.sibling("model.onnx.data").nbytes == 1000
    assert model.traffic == Traffic(4, 14)


def test_a_file_in_memory_that_changes_is_noticed(memory):
    model = open_remote(memory)
    model.check()
    fsspec.filesystem("memory").pipe("/models/model.onnx", CONTENT)

    with pytest.raises(ModelReadError, match="changed while it was read"):
        model.check()


def test_a_sibling_in_memory_that_is_not_there_is_missing(memory):
    with pytest.raises(
        ExternalDataError, match=r"^\[external-missing\] location 'other': memory:.* is not there"
    ):
        open_remote(memory).sibling("other")


def test_a_filesystem_with_ranges_at_once_gets_a_few_at_a_time(memory, monkeypatch):
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    wrapped = AsyncFileSystemWrapper(fsspec.filesystem("memory"), asynchronous=False)
    monkeypatch.setattr(
        "analyzer.read.filesystem.url_to_fs", lambda location, **options: (wrapped, "/models/model.onnx")
    )

    model = open_remote("other://models/model.onnx")

    assert model.read_ranges([(i, 2) for i in range(30)]) == [CONTENT[i : i + 2] for i in range(30)]


def test_a_filesystem_that_sends_less_is_an_error(memory, monkeypatch):
    model = open_remote(memory)
    fsspec.filesystem("memory").pipe("/models/model.onnx", CONTENT[:50_005])

    with pytest.raises(ModelReadError, match="5 of 10 bytes came from byte 50,000; run again"):
        model.read(50_000, 10)


def test_an_error_of_a_filesystem_is_reported_in_a_sentence_without_secrets(memory, monkeypatch):
    def info(*_: object) -> None:
        raise RuntimeError("key=SECRET is wrong\nand more")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.info", info)

    with pytest.raises(
        ModelReadError, match=r"^memory://m\.onnx: cannot be read: \.\.\. is wrong; run again"
    ):
        open_remote("memory://m.onnx?key=SECRET")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("memory://nowhere", "memory://nowhere: is not there; check the name"),
        ("memory://", "memory://: is a folder; name the .onnx file inside it"),
        ("nothing://x", "nothing://x: cannot be opened: Protocol not known: nothing; download the file"),
        ("zip://m.onnx::memory://x.zip", "names a file inside an archive, which is not read remotely"),
        ("local:///etc/passwd", "is a local file; name its path"),
        ("hf://model.onnx", "hf://model.onnx: is not a file on the hub; write hf://"),
        ("hf://owner/name", "hf://owner/name: is not a file on the hub; write hf://"),
        ("http://", "http://: is not a valid URL; check the name"),
        ("http://host:99999/m.onnx", "http://host:99999/m.onnx: is not a valid URL"),
    ],
)
def test_what_cannot_be_opened_is_reported_in_a_sentence(location, message):
    if location.startswith("hf:"):
        pytest.importorskip("huggingface_hub")

    with pytest.raises(ModelReadError) as caught:
        open_remote(location)

    assert message in str(caught.value)


# a local file


def test_a_file_url_is_a_local_file(tmp_path):
    path = tmp_path / "my model.onnx"
    path.write_bytes(CONTENT)

    source = open_source(path.as_uri())

    assert isinstance(source, LocalFile)
    assert source.name == str(path)


@pytest.mark.parametrize("location", ["w%2ebin", "w.bin?x=1", "w.bin#x"])
def test_characters_that_a_server_may_read_otherwise_are_named(memory, location):
    with pytest.raises(
        ExternalDataError, match=r"has a \?, # or %, so a server may open another file; rename the file"
    ):
        open_remote(memory).sibling(location)


def test_the_folder_of_the_model_is_no_data(memory):
    with pytest.raises(ExternalDataError, match=r"'sub/\.\.' is the model's own folder"):
        open_remote(memory).sibling("sub/..")


def test_the_sibling_of_a_file_url_may_not_be_a_link_that_leads_out(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(CONTENT)
    (tmp_path / "secret").write_bytes(WEIGHTS)
    (folder / "model.onnx.data").symlink_to(tmp_path / "secret")

    with pytest.raises(ExternalDataError, match="external-escapes"):
        open_source((folder / "model.onnx").as_uri()).sibling("model.onnx.data")


def test_a_file_url_of_another_host_is_refused():
    with pytest.raises(ModelReadError, match="names no local file; write file:///"):
        open_source("file://model.onnx")


# the hub


def test_a_file_on_the_hub_is_read_with_the_token_that_fsspec_is_configured_with(server, monkeypatch):
    pytest.importorskip("huggingface_hub")
    folder = server.folder / "owner" / "name" / "resolve" / "v1" / "onnx"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(CONTENT)
    (folder / "model.onnx_data").write_bytes(WEIGHTS)
    monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": server.url("").rstrip("/"), "token": "SECRET"})

    model = open_source("hf://owner/name@v1/onnx/model.onnx")
    weights = model.sibling("model.onnx_data")

    assert (model.name, weights.name) == (
        "hf://owner/name@v1/onnx/model.onnx",
        "hf://owner/name@v1/onnx/model.onnx_data",
    )
    assert (model.read(50_000, 4), weights.nbytes) == (CONTENT[50_000:50_004], 1000)
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer SECRET"}


# packages that are not installed


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Make a package appear uninstalled, also for modules that have imported it before."""
    for module in ("analyzer.read.web", "analyzer.read.filesystem"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for module in [*sys.modules, package]:
        if module.partition(".")[0] == package:
            monkeypatch.setitem(sys.modules, module, None)


def test_a_filesystem_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)

    with pytest.raises(
        ModelReadError, match="s3:// needs s3fs, which is not installed: pip install s3fs; or"
    ):
        open_remote("s3://bucket/model.onnx")


@pytest.mark.parametrize("package", ["aiohttp", "fsspec"])
def test_without_the_extra_the_extra_is_named(monkeypatch, package):
    hide(monkeypatch, package)

    with pytest.raises(MissingExtraError, match=rf'needs {package}.*pip install "onnxledger\[remote\]"'):
        open_remote("https://host/model.onnx")


def test_without_fsspec_every_url_names_the_extra(monkeypatch):
    hide(monkeypatch, "fsspec")

    for scheme in ("s3", "hf", "memory"):
        with pytest.raises(MissingExtraError, match=r"onnxledger\[remote\]"):
            open_remote(f"{scheme}://owner/name/model.onnx")


# the process


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.child
def test_importing_the_reader_imports_no_fsspec():
    code = "import sys, analyzer.read.source, analyzer.read.remote; print({'fsspec', 'aiohttp'} & set(sys.modules))"

    assert python(code).stdout == "set()\n"


@pytest.mark.child
def test_nothing_is_printed_on_stderr_whatever_happens(server):
    server.switches.statuses["/bad"] = 500
    code = """
import sys
from analyzer.errors import ModelReadError
from analyzer.read.remote import open_remote
kept = open_remote(sys.argv[1])
kept.read_ranges([(i, 1) for i in range(5000, 90000, 1000)])
for url in sys.argv[2:]:
    try:
        open_remote(url)
    except ModelReadError as error:
        print(error)
"""
    refused = [
        server.url("bad"),
        "http://127.0.0.1:1/x",
        server.url("x").replace("http", "https"),
        "s3://b/x",
    ]

    run = python(code, server.url("models/model.onnx"), *refused)

    assert (run.returncode, run.stderr) == (0, "")
    assert len(run.stdout.splitlines()) == len(refused)
