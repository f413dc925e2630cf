"""Which requests the pages of other sites make, through the browsers of people who can reach a
service. What a service does with such requests is its own business, and not known here.

Browsers tell: `Origin` goes with whatever is no plain read, `Sec-Fetch-*` with everything on
connections that they trust (localhost, https). Programs send neither, and are never refused here.
A page of this service has an origin that is its `Host`. That alone proves nothing, since a site may
have its own name point here (DNS rebinding): the name must be one that this service goes by.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from spillover.model.certified_names import same_name

Headers: TypeAlias = Mapping[str, str]
"""Headers of a request, by their names in lower case."""

ANY_ORIGIN = "*"

OTHER_SITE = "expected no request of another site's page"
FOREIGN_NAME = (
    "expected the page of a name that this service goes by: an IP address, localhost, or the "
    "address it is configured with"
)
HOW_TO_ALLOW = "; a node lets pages of others in with --allow-origin"

_OF_BROWSERS = ("origin", "sec-fetch-site", "sec-fetch-mode")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class WebSite:
    """The sites of one service: `own_names` are hosts besides IP addresses and localhost; `allowed`
    are origins of others whose pages may use it, as browsers write them, or ANY_ORIGIN."""

    own_names: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()

    def why_not_operate(self, headers: Headers) -> str | None:
        """Returns why a request is refused that changes what the service does; None if it is of no
        page, or of one of the service's own."""
        if not any(name in headers for name in _OF_BROWSERS):
            return None
        if not _is_of_own_page(headers):
            return OTHER_SITE
        return None if goes_by(host_of(headers), self.own_names) else FOREIGN_NAME

    def why_not_use(self, method: str, headers: Headers) -> str | None:
        """Returns why a request is refused that clients make; None if it is of no page, of one that
        is allowed, or of one of the service's own, also through a proxy that speaks TLS: no name of
        another site gets through that. Links that people follow to read something are let in."""
        if self.allows(headers):
            return None
        reason = self.why_not_operate(headers)
        if reason is None or _is_followed_link(method, headers):
            return None
        if reason is FOREIGN_NAME and _came_through_tls(headers):
            return None
        return reason + HOW_TO_ALLOW

    def allows(self, headers: Headers) -> bool:
        """Returns whether it is of a page of an origin that is allowed."""
        origin = headers.get("origin")
        return origin is not None and (ANY_ORIGIN in self.allowed or origin in self.allowed)


def goes_by(host: str, own_names: frozenset[str]) -> bool:
    """Returns whether that host can only mean this service."""
    return is_localhost(host) or host in own_names or address_of(host) is not None


def origin_of(text: str) -> str:
    """Returns an origin as browsers write it: lower case, no default port. Raises ValueError."""
    if text == ANY_ORIGIN:
        return text
    parts = urlsplit(text)
    port = parts.port  # raises ValueError itself
    bare = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or "@" in bare:
        raise ValueError(text)
    if text.lower().removesuffix("/") != bare.lower() or not bare.isascii() or " " in bare:
        raise ValueError(text)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = port is None or port == _DEFAULT_PORTS[parts.scheme]
    return f"{parts.scheme}://{host}" if default else f"{parts.scheme}://{host}:{port}"


def host_of(headers: Headers) -> str:
    """Returns the name that a request came under, without its port, as `same_name` writes it; empty
    if it cannot be read."""
    try:
        return same_name(urlsplit(f"//{headers.get('host', '')}").hostname or "")
    except ValueError:
        return ""


def is_localhost(host: str) -> bool:
    """Returns whether it is a name of this machine, whatever name servers say (RFC 6761)."""
    return host == "localhost" or host.endswith(".localhost")


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Returns the IP address that it is, if it is one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def tells_own_origin(headers: Headers) -> bool:
    """Returns whether it tells an origin, which is where it came to."""
    try:
        origin = urlsplit(headers.get("origin", ""))
        here = urlsplit(f"//{headers.get('host', '')}")
        default = _DEFAULT_PORTS.get(origin.scheme)
        there = (origin.hostname, origin.port or default)
        place = (here.hostname, here.port or default)
    except ValueError:
        return False
    return default is not None and bool(origin.hostname) and there == place


def _is_of_own_page(headers: Headers) -> bool:
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False  # same-site is another port, or another name of the same owner
    return "origin" not in headers or tells_own_origin(headers)


def _is_followed_link(method: str, headers: Headers) -> bool:
    """Not of a frame in a page, and nothing that a page could read."""
    mode, what_for = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return method in ("GET", "HEAD") and (mode, what_for) == ("navigate", "document")


def _came_through_tls(headers: Headers) -> bool:
    """What browsers tell only where the name that they asked for has shown its certificate, or is
    one of this machine."""
    return "sec-fetch-site" in headers or headers.get("origin", "").startswith("https://")
