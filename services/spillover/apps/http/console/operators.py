"""Who may drain and resume through the page, and why others may not. Only about requests: what
these do is the service's business.

A node knows no users, and its port is for clients. So the page operates only where nobody but an
operator can be: in a testbed, or on a connection from the machine itself (an SSH tunnel is one).
Behind a proxy on the same machine everybody seems to be local, so what a proxy adds, or a name that
is not this machine's, says otherwise. Other sites in the operator's browser are kept out by their
origin, and names that were made to point here by what the page's own address may be.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from spillover.apps.http.sites import address_of, goes_by, host_of, is_localhost, tells_own_origin

OVER_THE_NETWORK = (
    "This page came over the network, where operators cannot be told from clients. Use the command "
    "line, or open the page on the machine itself, for example through an SSH tunnel."
)
FOREIGN_NAME = (
    "This page was opened under a name that the service does not go by. Open it under an IP "
    "address, localhost, or the address it is configured with."
)
OTHER_SITE = "expected a request of the page itself: its origin is another one, or not told"

_ADDED_BY_PROXIES = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


@dataclass(frozen=True, slots=True)
class Operators:
    """The rule. In a `testbed` it does not matter where a request comes from; `own_names` are hosts
    that the service goes by besides IP addresses and localhost."""

    testbed: bool = False
    own_names: frozenset[str] = frozenset()
    has_tokens: bool = False
    """Operators show an API token: where they are does not matter then."""

    def why_not(self, client: str | None, headers: Mapping[str, str]) -> str | None:
        """Returns why whoever opened the page may not operate; None if they may. `client` is the
        other end of the connection."""
        host = host_of(headers)
        if not (self.testbed or self.has_tokens):
            through = any(name in headers for name in _ADDED_BY_PROXIES)
            if through or not _is_local(client) or not _is_local(host):
                return OVER_THE_NETWORK
        return None if goes_by(host, self.own_names) else FOREIGN_NAME

    def why_not_now(self, client: str | None, headers: Mapping[str, str]) -> str | None:
        """Returns the same of a request that changes something: it must be one of this very
        page."""
        site = headers.get("sec-fetch-site", "same-origin")
        if site != "same-origin" or not tells_own_origin(headers):
            return OTHER_SITE
        return self.why_not(client, headers)


def _is_local(host: str | None) -> bool:
    address = address_of(host or "")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return is_localhost(host or "") or (address is not None and address.is_loopback)
