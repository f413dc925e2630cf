"""What is known of host names: when one is looked up, what whoever asks is told, and which of its
addresses comes first. Who looks up, and how, is not known here.

`getaddrinfo` says nothing of how long an answer holds. So each holds for FRESH_S; then the next
connection has it looked up again, and waits PATIENCE_S for that. Whatever comes of it, the last
good answer stays good (RFC 8767, Serving Stale Data), but for a name that has ceased to exist. Of a
name that was never found it is the last failure that stands until a lookup has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest

FRESH_S = 5.0
"""An answer holds so long without a look. Why: cluster DNS gives its own names 5 s (CoreDNS), and
a service that closes every connection must not have its name looked up for each."""

PATIENCE_S = 0.25
"""A new answer is waited for so long where an old one is known. Why: long enough for a resolver
that works, to follow a host that has moved; short against the time to connect."""

RETRY_S = 1.0
"""The pause between the end of a lookup and the next one of the same name."""

GONE_S = 60.0
"""A name that was good and does not exist any more leads so long to where it did. Why: name
services of containers lose names while these restart."""

SUSPECT_S = 30.0
"""An address that did not take a connection comes last for so long."""

LOOKUPS_MAX = 128
"""Under way at once: each takes a thread."""

FAILING_MAX = 96
"""The most names among these whose last lookup failed: names that hang must leave room for
others."""

NAMES_MAX = 1_024
"""Remembered; the one that was not asked for longest is forgotten."""

ADDRESSES_MAX = 32
"""Remembered of one name."""

Address = tuple[int, str, int, int]
"""Family, address, and of IPv6 also the flow label and the scope."""


class Failure:
    """Why there is no answer: the resolver's number, if it has one, and words."""

    def __init__(self, text: str, number: int | None = None, *, is_gone: bool = False) -> None:
        self.text = text
        self.number = number
        self.is_gone = is_gone
        """There is no such name: a good answer to another question than whether the resolver
        works."""


FULL = Failure(f"{LOOKUPS_MAX} names are being looked up already, and none more at once")


class _Host:
    def __init__(self) -> None:
        self.addresses: tuple[Address, ...] = ()
        """The last good answer."""
        self.failure: Failure | None = None
        """The failure of the last lookup, if it failed."""
        self.asked_s = -math.inf
        self.began_s: float | None = None
        """The lookup that is under way."""
        self.fresh_until_s = -math.inf
        self.retry_s = -math.inf
        """The time before which there is no lookup."""
        self.gone_s: float | None = None
        """The instant since which the name does not exist."""
        self.turn = 0
        self.suspects: dict[Address, tuple[float, str]] = {}
        """Which addresses did not take a connection: until when that counts, and why."""

    def is_usable(self, now_s: float) -> bool:
        return bool(self.addresses) and (self.gone_s is None or now_s < self.gone_s + GONE_S)

    def ordered(self, now_s: float) -> tuple[Address, ...]:
        """Returns the addresses for one connection: families in turns (RFC 8305, section 4), those
        of one family in rotation, suspects last."""
        if len(self.addresses) == 1:
            return self.addresses
        families: dict[int, list[Address]] = {}
        for address in self.addresses:
            families.setdefault(address[0], []).append(address)
        turn = self.turn
        self.turn += 1
        rows = [row[turn % len(row) :] + row[: turn % len(row)] for row in families.values()]
        mixed = [address for row in zip_longest(*rows) for address in row if address is not None]
        suspects = self.suspected(now_s)
        mixed.sort(key=lambda address: address in suspects)
        if mixed[0] in self.suspects and mixed[0] not in suspects:
            # One connection tries it again; others do not wait for what comes of that.
            self.suspects[mixed[0]] = now_s + SUSPECT_S, self.suspects[mixed[0]][1]
        return tuple(mixed)

    def suspected(self, now_s: float) -> dict[Address, str]:
        """Returns which addresses did not take a connection lately, and why."""
        return {one: why for one, (until_s, why) in self.suspects.items() if now_s < until_s}


class Answers:
    """The answers of one process. A caller begins with `begin`, has the name looked up if that says
    so, then calls `ask`."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self.under_way = 0
        """Lookups."""

    def begin(self, name: str, now_s: float) -> bool:
        """Returns whether the name has to be looked up now; one lookup of each is under way."""
        host = self._hosts.get(name)
        if host is None:
            host = self._remember(name)
        host.asked_s = now_s
        if host.began_s is not None or now_s < max(host.fresh_until_s, host.retry_s):
            return False
        if self.under_way >= (LOOKUPS_MAX if host.failure is None else FAILING_MAX):
            return False
        host.began_s = now_s
        self.under_way += 1
        return True

    def ask(self, name: str, now_s: float) -> tuple[Address, ...] | Failure | float:
        """Returns the addresses to be tried, in order; or why there are none; or until when to wait
        for the lookup that is under way, and ask again."""
        host = self._hosts[name]
        is_usable = host.is_usable(now_s)
        if host.began_s is not None:
            if not is_usable and host.failure is None:
                return math.inf
            patient_until_s = host.began_s + PATIENCE_S
            is_bitten = is_usable and host.failure is not None
            if not is_bitten and now_s < patient_until_s:
                return patient_until_s
        if is_usable:
            return host.ordered(now_s)
        return host.failure or FULL

    def is_under_way(self, name: str) -> bool:
        host = self._hosts.get(name)
        return host is not None and host.began_s is not None

    def found(self, name: str, addresses: Iterable[Address], now_s: float) -> None:
        """A lookup has ended well, with one address at least."""
        host = self._ended(name, now_s)
        host.addresses = tuple(dict.fromkeys(addresses))[:ADDRESSES_MAX]
        host.failure = host.gone_s = None
        host.fresh_until_s = now_s + FRESH_S
        host.suspects = {a: told for a, told in host.suspects.items() if a in host.addresses}

    def failed(self, name: str, failure: Failure, now_s: float) -> None:
        """A lookup has ended without an answer."""
        host = self._ended(name, now_s)
        host.failure = failure
        if failure.is_gone and host.gone_s is None:
            host.gone_s = now_s

    def tried(
        self, name: str, won: Address | None, lost: Mapping[Address, str], now_s: float
    ) -> None:
        """Connections to these addresses could not be had, and why; to another one it could. Where
        there was none at all the host may have moved: the name is looked up soon."""
        host = self._hosts.get(name)
        if host is None:
            return
        if won is not None:
            host.suspects.pop(won, None)
        elif lost:
            host.fresh_until_s = -math.inf
        if len(host.addresses) > 1:
            until_s = now_s + SUSPECT_S
            told = {a: (until_s, why) for a, why in lost.items() if a in host.addresses}
            host.suspects |= told

    def why_late(self, name: str, now_s: float) -> str:
        """Returns what a connection that does not come waits for, in words that stay the same as
        long as that does; empty where nothing is known beyond that."""
        host = self._hosts.get(name)
        if host is None:
            return ""
        if host.began_s is not None and not host.is_usable(now_s):
            return f"{name} is still being looked up"
        suspects = host.suspected(now_s)
        return "; ".join(f"{one[1]}: {suspects[one]}" for one in host.addresses if one in suspects)

    def _ended(self, name: str, now_s: float) -> _Host:
        host = self._hosts[name]
        host.began_s = None
        host.retry_s = now_s + RETRY_S
        self.under_way -= 1
        return host

    def _remember(self, name: str) -> _Host:
        if len(self._hosts) >= NAMES_MAX:
            idle = (known for known, host in self._hosts.items() if host.began_s is None)
            del self._hosts[min(idle, key=lambda known: self._hosts[known].asked_s)]
        host = self._hosts[name] = _Host()
        return host
