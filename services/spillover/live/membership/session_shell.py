"""The session of one client in real time: connections to nodes, and lines. What follows from
what is heard is the machine's (`core.membership.client_session`).

It runs in what users import and in the load generator, which measures the clients that users have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any
from urllib.parse import quote

from spillover.core.driver import Driver
from spillover.core.membership import session_events as ev
from spillover.core.membership.choosing import RULES as RULES  # noqa: PLC0414 - for who runs it
from spillover.core.membership.client_session import ClientSession
from spillover.live.engine.timers import Timers
from spillover.live.http1.client import HttpClient
from spillover.live.http1.outgoing import StreamRefused
from spillover.live.membership import session_wire as wire
from spillover.live.process.logs import Message
from spillover.model.addresses import may_be_led_to
from spillover.model.errors import InputError, PeerError
from spillover.model.ranges import RETRY_AFTER_S_MAX

LEAVE_S = 2.0
"""The time that a node has to hear that its client goes."""

NOT_LET_IN = frozenset({429, 503})

_log = logging.getLogger(__name__)


class SessionShell:
    """Runs the machine of one client, `name`. `client_of` gives the connections to a url, and may
    raise InputError; `on_change` is called whenever `in_use` or `servers` may have changed. Of what
    nodes announce only the servers count that it `may_ask`. Must be made inside a running loop.
    """

    def __init__(
        self,
        name: str,
        machine: ClientSession,
        client_of: Callable[[str], HttpClient],
        on_change: Callable[[], None],
        may_ask: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._may_ask = may_ask
        self._path = f"{wire.SESSION}?client={quote(name, safe='')}"
        self._machine = machine
        self._client_of = client_of
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, tuple[ev.SessionServer, asyncio.Task[None]]] = {}
        self._heard: set[int] = set()
        """Attempts that have become sessions."""
        self._farewells: set[asyncio.Task[None]] = set()
        self._is_broken = False
        self._is_told = False
        self.connects = self.put_off = self.losses = self.moves = 0
        self.lies = 0
        """Lines that could not be read."""
        self.why = ""
        """There is no session, as far as was told."""
        self._timers = Timers(self._loop)
        interpreters: dict[type, Callable[[Any], None]] = {
            ev.Connect: self._connect,
            ev.Leave: self._leave,
            ev.Use: self._used,
        }
        watched = _Watched(machine, on_change)
        driver = Driver[ev.Event, Any](watched, self._timers, interpreters, self._on_failure)
        driver.start(ev.TimerFired())
        self._feed = driver.feed

    @property
    def in_use(self) -> ev.SessionServer | None:
        return self._machine.in_use

    @property
    def servers(self) -> tuple[ev.SessionServer, ...]:
        return self._machine.servers

    def start(self) -> None:
        self._feed(ev.Started())

    def listed(self, stamp: tuple[int, str, int], servers: Sequence[ev.SessionServer]) -> None:
        """Take in what the store of configurations has."""
        told = ev.Announcement("", *stamp, tuple(servers), 0, 0, 0.0)
        self._feed(ev.Listed(self._with_servers(told)))

    async def close(self) -> None:
        """Leave, and let go of everything."""
        self._feed(ev.Ended())
        if self._farewells:
            await asyncio.wait(self._farewells)
        streams = [task for _, task in self._streams.values()]
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        if self._farewells:  # to who let it in before its attempt had ended
            await asyncio.wait(self._farewells)
        self._timers.close()

    def _on_failure(self, error: BaseException) -> None:
        """The machine, or what obeys it, is broken: what is in use stays so, and nothing changes
        it any more."""
        self._is_broken = True
        self.why = f"a bug: {error!r}"
        _log.error(Message("bug: the federation is not followed any more"), exc_info=error)

    # --- commands -----------------------------------------------------------------------------

    def _connect(self, command: ev.Connect) -> None:
        self.connects += 1
        reading = self._read(command)
        task = self._loop.create_task(reading, name=f"session at {command.server.url}")
        self._streams[command.attempt] = command.server, task

    def _used(self, command: ev.Use) -> None:
        _log.debug(Message("session", node=command.server.url))

    def _leave(self, command: ev.Leave) -> None:
        found = self._streams.get(command.attempt)
        if found is None:
            return
        server, task = found
        if command.attempt not in self._heard:
            task.cancel()
            return
        self._heard.discard(command.attempt)
        self.moves += command.moved
        path = f"{self._path_of(command.attempt)}{'&moved=1' if command.moved else ''}"
        farewell = self._loop.create_task(self._say_goodbye(server, task, path))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)

    def _path_of(self, attempt: int) -> str:
        return f"{self._path}&attempt={attempt}"

    async def _say_goodbye(
        self, server: ev.SessionServer, task: asyncio.Task[None], path: str
    ) -> None:
        """The word first, the stream then: else it would look like a loss."""
        with suppress(PeerError):
            await self._client_of(server.url).request("DELETE", path, timeout_s=LEAVE_S)
        task.cancel()

    # --- streams ------------------------------------------------------------------------------

    async def _read(self, command: ev.Connect) -> None:
        attempt, url = command.attempt, command.server.url
        end: ev.Event = ev.Lost(attempt)
        try:
            hear = partial(self._hear, attempt)
            path = self._path_of(attempt)
            await self._client_of(url).stream_lines(
                path, hear, line_limit_bytes=wire.LINE_LIMIT_BYTES, silence_s=wire.SILENCE_S
            )
        except StreamRefused as refused:
            if refused.status in NOT_LET_IN:
                self.put_off += 1
                end = ev.NotReached(attempt, _retry_after_s(refused))
            self._tell(url, refused)
        except (PeerError, InputError) as error:
            self._tell(url, error)
        except asyncio.CancelledError:
            self._streams.pop(attempt, None)
            raise
        self._streams.pop(attempt, None)
        if attempt in self._heard:
            self._heard.discard(attempt)
            self.losses += 1
        self._feed(end)

    def _hear(self, attempt: int, line: bytes) -> None:
        """A first line that is none means that nobody of ours is there; a later one that it lies,
        and what it said before is all that is known."""
        if attempt not in self._heard:
            told = self._with_servers(_read_first(line))
            if not told.servers:
                detail = "the servers that it tells of are http, and this client was given https"
                raise PeerError(detail)
            self._heard.add(attempt)
            self._is_told = False
            self._feed(ev.Connected(attempt, told))
            return
        try:
            said = wire.decode_line(line)
        except wire.MalformedLine as error:
            self.lies += 1
            self._tell(self._streams[attempt][0].url, error)
            return
        if isinstance(said, ev.Announcement):
            self._feed(ev.Announced(attempt, self._with_servers(said)))
        elif said is not None:
            self._feed(ev.Parting(attempt, said))

    def _with_servers(self, told: ev.Announcement) -> ev.Announcement:
        """Without those that are not to be asked."""
        allowed = tuple(server for server in told.servers if self._may_ask(server.url))
        return told._replace(servers=allowed)

    def _tell(self, url: str, error: Exception) -> None:
        """Once for all that happens between two sessions."""
        if self._is_broken:
            return
        self.why = str(error)
        if not self._is_told:
            self._is_told = True
            _log.info(Message("no session", node=url, reason=str(error)))


class _Watched:
    """A machine; `on_change` is called whenever it has handled something."""

    def __init__(self, machine: ClientSession, on_change: Callable[[], None]) -> None:
        self._machine, self._on_change = machine, on_change
        self.next_deadline, self.check = machine.next_deadline, machine.check

    def handle(self, event: ev.Event, now_s: float) -> Sequence[ev.Command]:
        commands = self._machine.handle(event, now_s)
        self._on_change()
        return commands


def _read_first(line: bytes) -> ev.Announcement:
    """Raises PeerError for what no node says first."""
    try:
        told = wire.decode_line(line)
    except wire.MalformedLine as error:
        raise PeerError(f"it is no node: {error}") from None
    if not isinstance(told, ev.Announcement) or not told.can_be_meant:
        raise PeerError("it is no node: expected an announcement with a list of servers first")
    return told


def session_of(
    name: str,
    urls: Sequence[str],
    random: Random,
    client_of: Callable[[str], HttpClient],
    on_change: Callable[[], None],
    **options: Any,
) -> SessionShell:
    """Returns the session of a client that begins with these urls; the options, and what `random`
    draws, are those of ClientSession."""

    def may_ask(url: str) -> bool:
        return may_be_led_to(url, urls)

    machine = ClientSession(name, urls, random, **options)
    return SessionShell(name, machine, client_of, on_change, may_ask)


def _retry_after_s(refused: StreamRefused) -> float | None:
    try:
        return max(0.0, min(float(refused.headers[b"retry-after"]), RETRY_AFTER_S_MAX))
    except (KeyError, ValueError):
        return None
