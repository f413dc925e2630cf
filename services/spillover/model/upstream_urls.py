"""The services behind a handler `http:URL[,URL...]` or `proxy:URL[,URL...]`, as it names them.

Calling them is in `spillover.live.handlers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spillover.model.addresses import HOST, is_host, shown

UPSTREAMS_MAX = 64
"""The most upstreams: each start looks at all of them."""

_URL = re.compile(
    rf"(?P<scheme>(?i:https?))://(?P<host>{HOST})(:(?P<port>[0-9]{{1,5}}))?"
    r"(?P<target>[/?][!-\"$-~]*)?"
)
_FORM = "http(s)://HOST[:PORT][/PATH]"
_PORTS = {"http": 80, "https": 443}
PROXY = "proxy:"


@dataclass(frozen=True, slots=True)
class UpstreamUrl:
    """An upstream: the server at `origin`, and the `target` there that requests are posted to."""

    origin: str
    target: str

    @property
    def name(self) -> str:
        """Returns the name for people, without the query, which may hold secrets."""
        return self.origin + self.target.partition("?")[0]


def is_http_handler(handler: str) -> bool:
    """Returns whether it is meant to be one."""
    return handler.startswith(("http:", "https:"))


def upstream_urls(handler: str) -> tuple[UpstreamUrl, ...]:
    """Returns the upstreams of a handler `http:URL[,URL...]`; a URL alone is one, too.

    Raises ValueError with what was expected, in one line.
    """
    alone = handler.startswith(("http://", "https:"))
    return _each(handler if alone else handler.removeprefix("http:"), "http:URL")


def is_proxy_handler(handler: str) -> bool:
    """Returns whether it is meant to be one."""
    return handler.startswith(PROXY)


def passed_to(handler: str) -> tuple[UpstreamUrl, ...]:
    """Returns the upstreams of a handler `proxy:URL[,URL...]`: requests bring their paths along.

    Raises ValueError with what was expected, in one line.
    """
    found = _each(handler.removeprefix(PROXY), "proxy:URL")
    for upstream in found:
        if upstream.target != "/":
            raise ValueError(f"expected http://HOST[:PORT] without a path, got {upstream.name}")
    return found


def metrics_pages(told: str | None) -> tuple[UpstreamUrl, ...]:
    """Returns the pages `URL[,URL...]` on which engines say what they run.

    Raises ValueError with what was expected, in one line.
    """
    return () if told is None else _each(told, "URL")


def _each(told: str, form: str) -> tuple[UpstreamUrl, ...]:
    urls = told.split(",")
    if len(urls) > UPSTREAMS_MAX:
        raise ValueError(f"expected at most {UPSTREAMS_MAX} URLs, got {len(urls)}")
    found = []
    for url in urls:
        if not url:
            raise ValueError(f"expected {form}[,URL...], got an empty URL")
        upstream = _parsed(url)
        if upstream in found:
            raise ValueError(f"expected URLs that differ, got {shown(url)} twice")
        found.append(upstream)
    return tuple(found)


def _parsed(url: str) -> UpstreamUrl:
    match = _URL.fullmatch(url)
    if match is None or not is_host(match["host"]) or not 0 < int(match["port"] or 80) < 65_536:
        raise ValueError(f"expected {_FORM}, got {shown(url)}")
    scheme, host, target = match["scheme"].lower(), match["host"].lower(), match["target"] or "/"
    port = int(match["port"] or _PORTS[scheme])
    origin = f"{scheme}://{host}" if port == _PORTS[scheme] else f"{scheme}://{host}:{port}"
    return UpstreamUrl(origin, target if target.startswith("/") else f"/{target}")
