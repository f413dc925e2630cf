"""How requests to one server begin: its base URL taken apart, and the head of each request.

What follows a head, and on which connection, is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from spillover.live.http1.written import named_lines
from spillover.model.errors import InputError

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
"""CONNECT is missing on purpose: what follows its answer is no HTTP."""

PORTS = {"http": 80, "https": 443}

STARTS_MAX = 64
"""First lines that are kept made: most clients ask for a few paths, over and over."""

_PATH = re.compile(r"/[!-~]*")
_OF_FRAMING = re.compile(rb"(?im)^(?:host|content-length|transfer-encoding|connection):")


class BaseUrl:
    """A base URL, `http://HOST[:PORT][/PREFIX]` or the same with `https`, and headers that go with
    each request. The server is told `host` as its own, or what the URL says. Raises InputError if
    it is no such thing, and ValueError for headers that cannot be sent."""

    def __init__(
        self,
        base_url: str,
        headers: Sequence[tuple[bytes, bytes]] = (),
        host: str | None = None,
    ) -> None:
        expected = f"expected http://HOST[:PORT][/PREFIX] or https://..., got {base_url!r}"
        try:
            parts = urlsplit(base_url)
            port = PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
        except ValueError as error:
            raise InputError("base URL", "", expected) from error
        prefix = parts.path.rstrip("/")
        extra = parts.query or parts.fragment or parts.username is not None
        # urlsplit drops line ends and tabs in silence.
        clean = re.fullmatch(r"[!-~]+", base_url) is not None
        if parts.scheme not in PORTS or not parts.hostname or not port or extra or not clean:
            raise InputError("base URL", "", expected)
        self.is_secure = parts.scheme == "https"
        self.url = f"{parts.scheme}://{parts.netloc}{prefix}"
        self.host = parts.hostname
        self.port = port
        self._prefix = prefix
        told = (host or parts.netloc).encode()
        self._same_lines = b"Host: %b\r\n%b" % (told, _header_lines(headers))
        self._starts: dict[tuple[str, str], bytes] = {}

    def head(
        self, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], length_bytes: int
    ) -> bytes:
        """Returns the head of a request with a body of this length. Raises ValueError for a method,
        path or header that cannot be sent.
        """
        start = self._starts.get((method, path)) or self._start(method, path)
        lines = _header_lines(headers) if headers else b""
        if length_bytes or method in ("PATCH", "POST", "PUT"):
            return b"%bContent-Length: %d\r\n%b\r\n" % (start, length_bytes, lines)
        return b"%b%b\r\n" % (start, lines)

    def _start(self, method: str, path: str) -> bytes:
        if method not in METHODS:
            raise ValueError(f"expected one of {', '.join(sorted(METHODS))}, got {method!r}")
        if _PATH.fullmatch(path) is None:
            raise ValueError(f"expected a path of printable ASCII that starts with /, got {path!r}")
        start = f"{method} {self._prefix}{path} HTTP/1.1\r\n".encode() + self._same_lines
        if len(self._starts) < STARTS_MAX:
            self._starts[method, path] = start
        return start


def _header_lines(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    lines = named_lines(headers)
    if _OF_FRAMING.search(lines) is not None:
        raise ValueError(f"expected headers without line ends or framing, got {headers!r}")
    return lines
