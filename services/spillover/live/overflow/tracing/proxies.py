"""The proxy through which a collector is reached, as the environment says. Nothing is sent here."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_of(url: str, environment: Mapping[str, str]) -> str | None:
    """Returns the proxy for this URL; None where it is to be reached directly. The variables are
    those of curl (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`, in small letters or else in
    capitals). This machine itself is always reached directly, as by Go's clients."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    proxy = _told(environment, f"{parts.scheme}_proxy") or _told(environment, "all_proxy")
    if not proxy or _is_here(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    without = re.split(r"[,\s]+", _told(environment, "no_proxy"))
    return None if any(_is_meant(entry.lower(), host, port) for entry in without) else proxy


def _told(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def _is_here(host: str) -> bool:
    address = _address(host)
    if address is None:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback


def _is_meant(entry: str, host: str, port: int) -> bool:
    """Returns whether this entry of `no_proxy` means that host: *, a name and all below it, an
    address or a network; a name or an address with a port is meant only there."""
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        address = _address(host)
        return address is not None and address in network
    name, colon, of_port = entry.rpartition(":")
    if colon:
        return of_port == str(port) and _is_meant(name, host, port)
    name = entry.removeprefix("*").removeprefix(".").removesuffix(".")
    return name != "" and (host == name or host.endswith(f".{name}"))


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(re.sub(r"^\[(.*)\]$", r"\1", entry), strict=False)
    except ValueError:
        return None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
