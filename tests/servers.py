"""A web server for one folder that counts requests and sent bytes, and misbehaves on demand."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: str
    headers: Message

    @property
    def range(self) -> str | None:
        return self.headers["Range"]


@dataclass
class Switches:
    """Behaviour of the server from now on; the defaults are those of a good one."""

    ranges: bool = True
    head: bool = True
    etag: str | None = '"one"'
    modified: str | None = None
    redirects: dict[str, str] = field(default_factory=dict)
    """Path to new location."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Path to a status that is sent instead of the file."""
    content_range: str | None = None
    """Content-Range that replaces the true one; with `{first}`, `{last}` and `{total}`."""
    length: bool = True
    """Whether a body has a declared length; else it ends with the connection."""
    extra: int = 0
    """Bytes that are sent beyond the requested ones."""
    cut: int | None = None
    """Bytes of a body after which the connection is closed."""
    delay: float = 0.0
    at_once: int | None = None
    """Most requests at the same time; further ones are answered 503."""
    encoding: str | None = None
    server: str = "counting/1"


class CountingServer(ThreadingHTTPServer):
    daemon_threads = False  # so that `server_close` waits for the threads

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.switches = Switches()
        self.requests: list[Request] = []
        self.sent: Counter[str] = Counter()
        """Bytes of bodies, by path."""
        self.counting = threading.Lock()
        self.answering = 0
        self.most_at_once = 0
        """Most requests that were processed at the same time."""
        self.closing = threading.Event()
        self.connections: set[Any] = set()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path.removeprefix('/')}"

    def requests_for(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == "/" + path.removeprefix("/")]

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        try:
            super().finish_request(request, client_address)
        except ConnectionError:  # the client closed the connection
            pass
        finally:
            self.connections.discard(request)

    def close(self) -> None:
        """End connections that clients keep open, because the threads would wait for them."""
        self.closing.set()
        self.shutdown()
        for connection in list(self.connections):
            with suppress(OSError):  # the client was first
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


@contextmanager
def serving(folder: Path) -> Iterator[CountingServer]:
    server = CountingServer(folder)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    is_under_way = False
    disable_nagle_algorithm = True  # else a body waits until its headers are acknowledged, for 0.04 s
    server: CountingServer

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the tests count instead."""

    def version_string(self) -> str:
        return self.server.switches.server

    def _answer(self) -> None:
        server = self.server
        self.is_under_way = True
        with server.counting:
            server.answering += 1
            server.most_at_once = max(server.most_at_once, server.answering)
            is_busy = server.switches.at_once is not None and server.answering > server.switches.at_once
        try:
            if is_busy:
                self._send(503)
            else:
                self._answer_counted()
        finally:
            self._end()

    def _end(self) -> None:
        """Count the request as answered before its last byte is sent, because the next may come at once."""
        with self.server.counting:
            self.server.answering -= self.is_under_way
        self.is_under_way = False

    def _answer_counted(self) -> None:
        switches = self.server.switches
        parts = urlsplit(self.path)
        self.server.requests.append(Request(self.command, parts.path, parts.query, self.headers))
        self.server.closing.wait(switches.delay)
        file = self.server.folder / unquote(parts.path).lstrip("/")
        if parts.path in switches.redirects:
            self._send(302, {"Location": switches.redirects[parts.path]})
        elif self.command == "HEAD" and not switches.head:
            self._send(405)
        elif parts.path in switches.statuses:
            self._send(switches.statuses[parts.path])
        elif not file.is_file():
            self._send(404)
        else:
            self._send_file(file)

    def _send_file(self, file: Path) -> None:
        switches, total = self.server.switches, file.stat().st_size
        first, end, status, headers = 0, total, 200, {}
        if switches.ranges and (match := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")):
            first, end, status = int(match[1]), min(int(match[2]) + 1, total), 206
            if first >= total:
                return self._send(416, {"Content-Range": f"bytes */{total}"})
            template = switches.content_range or "bytes {first}-{last}/{total}"
            headers["Content-Range"] = template.format(first=first, last=end - 1, total=total)
        marks = {
            "ETag": switches.etag,
            "Last-Modified": switches.modified,
            "Content-Encoding": switches.encoding,
        }
        headers |= {key: value for key, value in marks.items() if value is not None}
        return self._send(status, headers, file, first, end + switches.extra)

    def _send(
        self, status: int, headers: dict[str, str] | None = None, file: Path | None = None, *span: int
    ) -> None:
        first, end = span or (0, 0)
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if self.server.switches.length:
            self.send_header("Content-Length", str(end - first))
        else:
            self.send_header("Connection", "close")
        has_body = file is not None and self.command != "HEAD" and first < end
        if not has_body:
            self._end()
        self.end_headers()
        if file is not None and has_body:
            self._send_body(file, first, end)

    def _send_body(self, file: Path, first: int, end: int) -> None:
        cut, path = self.server.switches.cut, urlsplit(self.path).path
        if cut is not None:
            end, self.close_connection = min(end, first + cut), True
        with file.open("rb") as stream:
            stream.seek(first)
            while first < end:
                body = stream.read(min(CHUNK, end - first)) or b"?" * min(CHUNK, end - first)
                with self.server.counting:  # before sending: a test may check as soon as it has the body
                    self.server.sent[path] += len(body)
                first += len(body)
                if first >= end:
                    self._end()
                self.wfile.write(body)
