"""HTTP: ranges of a file, through the session of fsspec's filesystem, and never more than was requested.

fsspec's own `cat_file` accepts all bytes that the server sends, which is the whole file if a server has no ranges, and
it follows every redirect; so the requests are made here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import fsspec
from fsspec.asyn import sync
from yarl import URL

from analyzer.read.remote import AT_ONCE, DOWNLOAD, Answer, Meter, Unanswered, shown

_MOVED = frozenset({301, 302, 303, 307, 308})
_REFUSED = frozenset({401, 403, 404, 410})
_REDIRECTS = 10
_SLOWEST = 1 << 14  # bytes per second; a server that sends a long range slower than this is timed out

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", re.ASCII)


class Web:
    """Server that stores a model, and the servers to which it redirects."""

    at_once = AT_ONCE

    def __init__(self, url: str, timeout: float, headers: Mapping[str, str] | None = None) -> None:
        self.meter = Meter()
        self._timeout = timeout
        # Target of each URL's redirect: a link to mirrors may lead elsewhere the next time.
        self._moved: dict[str, str] = {}
        try:
            self.url = str(_parse(url))
            self._origin = _parse(url).origin()
        except ValueError:
            raise Unanswered("is not a valid URL; check the name") from None
        self._fs = fsspec.filesystem(self._origin.scheme, skip_instance_cache=True)
        session = {**self._fs.client_kwargs, "auto_decompress": False}
        # Headers and credentials in fsspec's configuration go to this server, and not to redirects.
        own = {key: session.pop(key) for key in ("auth", "cookies", "headers") if key in session}
        self._own: dict[str, Any] = {**own, **self._fs.kwargs}
        self._own["headers"] = {
            **own.get("headers", {}),
            **self._fs.kwargs.get("headers", {}),
            **(headers or {}),
        }
        self._fs.client_kwargs = session

    def probe(self, url: str, length: int) -> Answer:
        """Request a small range instead of HEAD, which presigned URLs refuse; it also tests for ranges."""
        return self.request(url, [(0, length)])[0]

    def request(self, url: str, ranges: Sequence[tuple[int, int]]) -> list[Answer]:
        answers: list[Answer] = sync(self._fs.loop, self._request_all, url, ranges)
        return answers

    def sibling_url(self, url: str, location: str) -> str:
        # The query is kept: a token for the folder is also valid for the sibling, and no other host gets it.
        scheme, host, path, query, _ = urlsplit(url)
        folder = path.rpartition("/")[0]
        return urlunsplit((scheme, host, f"{folder}/{quote(location, errors='surrogateescape')}", query, ""))

    async def _request_all(self, url: str, ranges: Sequence[tuple[int, int]]) -> list[Answer]:
        """Return the answers; after the first error no request is sent, and those under way are awaited.

        A server that limits concurrent requests would count those under way among the following ones.
        """
        gate = asyncio.Semaphore(AT_ONCE)
        errors: list[Exception] = []

        async def request(offset: int, length: int) -> Answer | None:
            async with gate:
                if errors:
                    return None
                try:
                    return await self._request_timed(url, offset, length)
                except Exception as error:  # noqa: BLE001 - raised below
                    errors.append(error)
                    return None

        answers = await asyncio.gather(*(request(offset, length) for offset, length in ranges))
        if errors:
            raise errors[0]
        return [answer for answer in answers if answer is not None]

    async def _request_timed(self, url: str, offset: int, length: int) -> Answer:
        limit = self._timeout + length / _SLOWEST
        try:
            async with asyncio.timeout(limit):
                return await self._request_once(url, offset, length)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Without the cause, whose text may hold the URL with its secrets.
            raise Unanswered(_describe_error(error, limit)) from None

    async def _request_once(self, url: str, offset: int, length: int) -> Answer:
        target = self._moved.get(url, url)
        response = await self._follow(target, offset, length)
        if target != url and response.status in _REFUSED:  # a redirect may be valid for only some minutes
            response.close()
            response = await self._follow(url, offset, length)
        async with response:
            answer = await self._read_answer(response, offset, length)
        self._moved[url] = answer.url
        return answer

    async def _follow(self, url: str, offset: int, length: int) -> aiohttp.ClientResponse:
        """Send the request, and send it again to each redirect."""
        here = _parse(url)
        session: aiohttp.ClientSession = await self._fs.set_session()
        range_headers = {"Accept-Encoding": "identity", "Range": f"bytes={offset}-{offset + length - 1}"}
        for _ in range(_REDIRECTS + 1):
            own = self._own if here.origin() == self._origin else {}
            options = {
                **own,
                "headers": {**own.get("headers", {}), **range_headers},
                "allow_redirects": False,
            }
            options.setdefault("proxy", _proxy(here))
            self.meter.requests += 1
            response = await session.get(here, **options)
            location = response.headers.get("Location")
            if response.status not in _MOVED or not location:
                return response
            response.close()
            there = here.join(_parse(location))
            await _check_redirect(here, there)
            here = there
        raise Unanswered(f"is redirected more than {_REDIRECTS} times; check the name")

    async def _read_answer(self, response: aiohttp.ClientResponse, offset: int, length: int) -> Answer:
        """Return the body if it is the requested one. Any other is left unread, and the connection is closed."""
        headers = response.headers
        first, last, total = _span(response, length)
        marks = (headers.get("ETag", ""), headers.get("Last-Modified", ""))
        answer = Answer(b"", total, marks, str(response.url))
        if first is None:
            return answer
        if headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
            raise Unanswered(f"the server compresses the file, so no range of it can be read; {DOWNLOAD}")
        end = offset + length if total is None else min(offset + length, total)
        if (first, last) != (offset, end - 1):
            raise Unanswered(f"the server sends other bytes than requested; {DOWNLOAD}")
        return Answer(await self._body(response, end - offset), total, marks, answer.url)

    async def _body(self, response: aiohttp.ClientResponse, length: int) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            self.meter.bytes_read += len(chunk)
            if len(body) > length:
                raise Unanswered(f"the server sends more bytes than requested; {DOWNLOAD}")
        if len(body) < length:
            raise Unanswered(f"the connection ended after {len(body):,} of {length:,} bytes; run again")
        return bytes(body)


def _parse(url: str) -> URL:
    # The URL is kept as it is if it can be sent so: a signature may hold for one spelling of a query only.
    is_ready = url.isascii() and url.isprintable() and " " not in url
    return URL(url, encoded=is_ready).with_fragment(None)


def _proxy(url: URL) -> str | None:
    """Return the environment's proxy. aiohttp's `trust_env` also reads ~/.netrc, and then refuses tokens in headers."""
    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)


def _span(response: aiohttp.ClientResponse, length: int) -> tuple[int | None, int, int | None]:
    """Return the first and last byte of an answer, and the size of the file; no first byte if the answer is empty."""
    status, size = response.status, response.content_length
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    first, last, total = match.groups() if match else (None, None, None)
    known = int(total) if total and total != "*" else None
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and known is not None:
        return None, 0, known
    if status == HTTPStatus.OK and size is not None and size <= length:  # the whole file, if it is small
        return (0 if size else None), size - 1, size
    if status == HTTPStatus.OK:
        raise Unanswered(f"the server{_software(response)} does not support range requests; {DOWNLOAD}")
    if status != HTTPStatus.PARTIAL_CONTENT:
        raise Unanswered(_refusal(status))
    return int(first or -1), int(last or -1), known


def _software(response: aiohttp.ClientResponse) -> str:
    server = "".join(filter(str.isprintable, response.headers.get("Server", "")))[:60]
    return f" ({server})" if server else ""


def _refusal(status: int) -> str:
    try:
        answer = f"the server answers {status} {HTTPStatus(status).phrase}"
    except ValueError:
        answer = f"the server answers {status}"
    if status in (401, 403, 407):
        return f"{answer}; check the token or the signature in the URL: many are valid for one file and a few minutes"
    if status in (404, 410):
        return f"{answer}; check the name"
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:
        return f"{answer}; run again later"
    return f"{answer}; {DOWNLOAD}"


async def _check_redirect(here: URL, there: URL) -> None:
    """Refuse redirects that expose private data: content without encryption, or a host of the private network.

    A name that resolves to another address a moment later is not caught.
    """
    where = f"is redirected to {shown(str(there))}"
    if there.scheme not in ("http", "https"):
        raise Unanswered(f"{where}, which is not followed; {DOWNLOAD}")
    if (here.scheme, there.scheme) == ("https", "http"):
        raise Unanswered(f"{where}, which is not encrypted; name that URL if you trust the connection")
    if here.host != there.host and await _is_inside(there.host) and not await _is_inside(here.host):
        raise Unanswered(f"{where}, inside this network; name that URL if that is what you want")


async def _is_inside(host: str | None) -> bool:
    """Whether a host is this machine or one of a private network."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:  # the request reports it, or a proxy knows the name
        return False
    addresses = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found]
    return any(not (getattr(address, "ipv4_mapped", None) or address).is_global for address in addresses)


def _describe_error(error: Exception, limit: float) -> str:
    """Return the reason for a missing answer, and the next step."""
    match error:
        case TimeoutError():
            return f"no complete answer within {limit:.3g} s; run again, or {DOWNLOAD}"
        case aiohttp.ClientConnectorDNSError():
            return "unknown host; check the name and the network"
        case aiohttp.ClientSSLError():
            return f"no secure connection to the server ({error.os_error}); check its certificate"
        case aiohttp.ClientConnectorError():
            reason = os.strerror(error.errno) if error.errno else "no route to the server"
            return f"no connection: {reason}; check the name and the network"
        case aiohttp.InvalidURL() | ValueError():
            return "leads to an invalid URL; check the name and the proxy"
        case aiohttp.ClientResponseError():
            return f"the answer of the server is invalid ({type(error).__name__}); {DOWNLOAD}"
        case _:
            return f"the connection was cut ({type(error).__name__}); run again"
