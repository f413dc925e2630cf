"""A request on its way, and the counts of a client. `calls` carries it."""

from __future__ import annotations

import asyncio
import secrets
from typing import NamedTuple

from spillover.client import wire
from spillover.live.http1.outgoing import OutgoingRequest, Response
from spillover.model.errors import Cancelled, OutcomeUnknown, PeerError

Header = tuple[bytes, bytes]


class Stats(NamedTuple):
    """Counts of a client's requests so far."""

    requests: int
    """The number of runs and submits that were begun."""
    answered: int
    """The number of them that came to an answer, or to an accepted job."""
    failed: int
    """The number of them that ended with an error."""
    retries: int
    """The number of times that one of them was sent again, or to another node."""
    called_off: int
    """The number of them that were cancelled at their node, since nobody waited for them any
    more."""
    under_way: int
    """The number of them that a node has now."""


class Call:
    """A request on its way. `ours` is True where the client made up its name: nobody else can find
    it, so that it ends with the caller that waits for it."""

    def __init__(
        self,
        body: bytes,
        headers: tuple[Header, ...],
        key: str | None,
        until_s: float,
        *,
        at_most_once: bool = False,
    ) -> None:
        self.ours = key is None and not at_most_once
        self.repeatable = not at_most_once
        self.name = key if key is not None else secrets.token_hex(12) if self.ours else ""
        self.body = body
        self.headers = (*headers, wire.key_header(self.name)) if self.name else headers
        self.until_s = until_s
        self.may_have_run = False
        self.url = ""
        self.exchange: OutgoingRequest | None = None
        self.future: asyncio.Future[Response | BaseException] | None = None
        self.came_to: Response | BaseException | None = None
        """The result of the last attempt. It may come just when nobody waits for it any more."""

    def begin(self, url: str, future: asyncio.Future[Response | BaseException] | None) -> None:
        """Begin another attempt, at that node; a thread that waits needs no future."""
        self.url, self.future, self.came_to = url, future, None

    def settle(self, came_to: Response | BaseException) -> None:
        """Take the result of the attempt; exchanges call it as their `on_end`."""
        self.came_to = came_to
        if self.future is not None and not self.future.done():
            self.future.set_result(came_to)

    def closed_under(self) -> PeerError:
        message = "the client was closed while it waited for the answer"
        return wire.named(Cancelled(message), self.url, self.name or None)


def may_go_on(came_to: Response | BaseException | None) -> bool:
    """Returns whether a node may still have the request whose result this is, unread."""
    if isinstance(came_to, Response):
        return came_to.status == 202
    return isinstance(came_to, OutcomeUnknown)
