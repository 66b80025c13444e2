"""Real servers: without ranges, slow, broken, moved, or hostile."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from servers import CountingServer, serving
from yarl import URL

from analyzer.errors import ModelReadError
from analyzer.model.ranges import Traffic
from analyzer.read import web
from analyzer.read.remote import STEP, RemoteFile, Unanswered, open_remote

CONTENT = bytes(range(256)) * 400


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CountingServer]:
    (tmp_path / "model.onnx").write_bytes(CONTENT)
    with serving(tmp_path) as serving_server:
        yield serving_server


@pytest.fixture
def other(tmp_path: Path) -> Iterator[CountingServer]:
    """Server of the same folder at another origin."""
    with serving(tmp_path) as serving_server:
        yield serving_server


def opened(server: CountingServer, timeout: float = 30.0) -> RemoteFile:
    return open_remote(server.url("model.onnx"), timeout)


def refusal(server: CountingServer, timeout: float = 30.0) -> str:
    with pytest.raises(ModelReadError) as caught:
        opened(server, timeout)
    prefix = server.url("model.onnx") + ": "
    assert str(caught.value).startswith(prefix)
    return str(caught.value).removeprefix(prefix)


# ranges


def test_a_server_without_ranges_is_named_and_its_file_not_downloaded(server):
    server.switches.ranges = False
    os.truncate(server.folder / "model.onnx", 400_000_000)  # a sparse file

    message = refusal(server)

    assert message == "the server (counting/1) does not support range requests; download the file and name it"
    assert server.sent.total() < 40_000_000  # at most the buffers of two sockets


def test_a_server_that_loses_its_ranges_sends_nothing_that_is_kept(server):
    model = opened(server)
    server.switches.ranges = False

    with pytest.raises(ModelReadError, match="does not support range requests"):
        model.read(50_000, 10)
    assert model.traffic == Traffic(2, STEP)


def test_a_file_that_fits_the_first_request_needs_no_ranges(server):
    server.switches.ranges = False
    (server.folder / "model.onnx").write_bytes(CONTENT[:STEP])

    model = opened(server)
    model.check()

    assert (model.nbytes, model.read(100, 5)) == (STEP, CONTENT[100:105])


def test_a_server_that_refuses_head_is_read(server):
    server.switches.head = False

    assert opened(server).nbytes == len(CONTENT)


def test_ranges_are_requested_a_few_at_a_time(server):
    model = opened(server)
    server.switches.delay = 0.05

    model.read_ranges([(offset, 1) for offset in range(5_000, 5_032)])

    assert 1 < server.most_at_once <= web.AT_ONCE


def test_a_connection_is_used_again(server):
    model = opened(server)
    connections = len(server.connections)

    for offset in range(5_000, 5_020):
        model.read(offset, 1)

    assert len(server.connections) == connections == 1


def test_the_file_is_requested_without_compression(server):
    opened(server)

    assert server.requests[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"encoding": "gzip"}, "compresses the file, so no range of it can be read; download the file"),
        (
            {"content_range": "bytes 7-4102/{total}"},
            "sends other bytes than requested; download the file",
        ),
        ({"content_range": "bytes {first}-99999/{total}"}, "sends other bytes than requested"),
        ({"content_range": "pages 1-2/3"}, "sends other bytes than requested"),
        ({"content_range": "bytes {first}-{last}/*"}, "its size is not known; download the file and name it"),
        ({"extra": 100_000}, "sends more bytes than requested; download the file"),
        ({"extra": 1, "length": False}, "sends more bytes than requested; download the file"),
        ({"cut": 100, "length": False}, "the connection ended after 100 of 2,048 bytes; run again"),
        ({"cut": 100}, "the connection was cut (ClientPayloadError); run again"),
        ({"ranges": False, "length": False}, "does not support range requests"),
    ],
)
def test_an_answer_that_is_not_what_was_requested_is_refused(server, switches, message):
    for key, value in switches.items():
        setattr(server.switches, key, value)

    assert message in refusal(server)


def test_one_range_that_fails_fails_them_all(server):
    model = opened(server)
    server.switches.cut = 5

    with pytest.raises(ModelReadError, match="run again"):
        model.read_ranges([(offset, 10) for offset in range(5_000, 6_000, 10)])


def test_what_the_server_calls_itself_cannot_reach_a_terminal(server):
    server.switches.ranges, server.switches.server = False, "evil\x1b[31m" + "x" * 1000

    message = refusal(server)

    assert message.isprintable()
    assert len(message) < 200


def test_a_proxy_of_the_environment_is_used(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url("").replace("//", "//user:SECRET@"))
    monkeypatch.setenv("no_proxy", "")

    assert open_remote("http://nowhere.invalid/model.onnx").nbytes == len(CONTENT)
    assert server.requests[0].headers["Host"] == "nowhere.invalid"
    assert server.requests[0].headers["Proxy-Authorization"].startswith("Basic ")


# refusals


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "answers 401 Unauthorized; check the token or the signature in the URL"),
        (403, "answers 403 Forbidden; check the token or the signature in the URL"),
        (404, "answers 404 Not Found; check the name"),
        (410, "answers 410 Gone; check the name"),
        (418, "answers 418 I'm a Teapot; download the file"),
        (429, "answers 429 Too Many Requests; run again later"),
        (500, "answers 500 Internal Server Error; run again later"),
        (599, "answers 599; run again later"),
    ],
)
def test_a_refusal_is_named_with_what_to_do(server, status, message):
    server.switches.statuses["/model.onnx"] = status

    assert message in refusal(server)
    assert len(server.requests) == 1


def test_a_slow_server_is_given_up(server):
    server.switches.delay = 20

    message = refusal(server, timeout=0.1)

    assert re.fullmatch(
        r"no complete answer within 0\.\d+ s; run again, or download the file and name it", message
    )


def test_a_connection_that_is_refused_is_named():
    with pytest.raises(ModelReadError, match="no connection: Connection refused; check the name"):
        open_remote("http://127.0.0.1:1/model.onnx")


def test_a_host_that_is_not_known_is_named():
    with pytest.raises(ModelReadError, match="unknown host; check the name and the network"):
        open_remote("http://nowhere.invalid/model.onnx")


def test_a_server_without_tls_is_named(server):
    with pytest.raises(ModelReadError, match="no secure connection to the server"):
        open_remote(server.url("model.onnx").replace("http", "https"))


# redirects


def test_a_redirect_is_followed_once_and_remembered(server, other):
    server.switches.redirects["/latest"] = other.url("model.onnx?signature=SECRET")

    model = open_remote(server.url("latest"))
    model.read(50_000, 10)
    model.check()

    assert model.redirected_to == other.url("model.onnx")
    assert (len(server.requests), len(other.requests)) == (1, 3)
    assert model.traffic == Traffic(4, other.sent.total(), other.url("model.onnx"))


def test_a_file_that_was_not_redirected_says_so(server):
    assert open_remote(server.url("model.onnx?token=1")).redirected_to is None


def test_where_a_redirect_led_is_found_again_when_it_has_expired(server, other):
    server.switches.redirects["/latest"] = other.url("model.onnx?signature=1")
    model = open_remote(server.url("latest"))
    (other.folder / "again.onnx").write_bytes(CONTENT)
    other.switches.statuses["/model.onnx"] = 403
    server.switches.redirects["/latest"] = other.url("again.onnx?signature=2")

    assert model.read(50_000, 3) == CONTENT[50_000:50_003]
    assert model.read(60_000, 3) == CONTENT[60_000:60_003]
    assert (len(server.requests), len(other.requests)) == (2, 4)


def test_siblings_are_looked_for_beside_the_url_that_was_named(server, other):
    server.switches.redirects["/models/latest"] = other.url("model.onnx")
    server.switches.redirects["/models/weights"] = other.url("model.onnx")

    weights = open_remote(server.url("models/latest")).sibling("weights")

    assert weights.nbytes == len(CONTENT)
    assert [request.path for request in server.requests] == ["/models/latest", "/models/weights"]


def test_a_redirect_may_be_relative(server):
    server.switches.redirects["/a/latest"] = "../model.onnx"

    assert open_remote(server.url("a/latest")).redirected_to == server.url("model.onnx")


def test_credentials_go_to_the_server_that_was_named_and_to_no_other(server, other, monkeypatch):
    settings = {"headers": {"X-Token": "SECRET"}, "client_kwargs": {"headers": {"X-Key": "SECRET"}}}
    monkeypatch.setitem(fsspec.config.conf, "http", settings)
    server.switches.redirects["/a"] = "/b"
    server.switches.redirects["/b"] = other.url("model.onnx")

    open_remote(server.url("a").replace("//", "//user:SECRET@")).read(50_000, 10)

    for request in server.requests:
        assert request.headers["X-Token"] == request.headers["X-Key"] == "SECRET"
        assert request.headers["Authorization"].startswith("Basic ")
    assert "SECRET" not in "".join(str(request.headers) for request in other.requests)
    assert not any(request.headers["Authorization"] for request in other.requests)


def test_redirects_in_a_circle_are_given_up(server):
    server.switches.redirects["/model.onnx"] = "/model.onnx"

    assert refusal(server) == "is redirected more than 10 times; check the name"
    assert len(server.requests) == 11


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirect_away_from_the_web_is_refused(server, location):
    server.switches.redirects["/model.onnx"] = location

    assert refusal(server).startswith(f"is redirected to {location}, which is not followed; download")


@pytest.mark.parametrize("location", ["http://[::1", "http://host:99999/"])
def test_a_redirect_to_what_is_no_url_is_refused(server, location):
    server.switches.redirects["/model.onnx"] = location

    assert "leads to an invalid URL" in refusal(server)


def test_a_redirect_into_this_network_is_refused(server, other, monkeypatch):
    async def is_inside(host: str | None) -> bool:
        return host == "localhost"

    monkeypatch.setattr(web, "_is_inside", is_inside)
    inside = other.url("model.onnx").replace("127.0.0.1", "localhost")
    server.switches.redirects["/model.onnx"] = inside + "?token=SECRET"

    assert refusal(server) == (
        f"is redirected to {inside}, inside this network; name that URL if that is what you want"
    )
    assert not other.requests


def test_a_redirect_that_gives_up_encryption_is_refused():
    with pytest.raises(
        Unanswered, match=r"is redirected to http://b/x, which is not encrypted; name that URL"
    ):
        asyncio.run(web._check_redirect(URL("https://a/x"), URL("http://b/x?token=SECRET")))


@pytest.mark.parametrize(
    ("host", "is_inside"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("10.1.2.3", True),
        ("192.168.0.1", True),
        ("169.254.169.254", True),
        ("::1", True),
        ("fe80::1", True),
        ("::ffff:127.0.0.1", True),
        ("8.8.8.8", False),
        ("2606:4700::1111", False),
        ("nowhere.invalid", False),
    ],
)
def test_hosts_of_this_network_are_known(host, is_inside):
    assert asyncio.run(web._is_inside(host)) is is_inside
