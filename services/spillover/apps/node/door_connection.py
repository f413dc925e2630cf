"""A client of the service behind a door: its requests are passed on, one after another.
`proxy_door` knows where they go, and `live.http1.server_connection` how they are read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol

from spillover.apps.http.exchange import (
    NO_ROOM,
    NO_ROOM_S,
    too_large,
    unread,
)
from spillover.apps.http.problems import Problem
from spillover.apps.node.door_checks import Checked, tell_ready
from spillover.apps.node.door_pages import Page
from spillover.apps.node.door_problems import write_problem
from spillover.apps.node.passed_answers import PassedAnswer
from spillover.live.engine.write_batch import Buffer
from spillover.live.handlers.proxy.known import KnownRequest, KnownRequests, WrittenHeads
from spillover.live.handlers.proxy.onward import (
    Ingress,
    check_tunnel,
    has_passed,
    is_check,
)
from spillover.live.http1.bounds import Owner
from spillover.live.http1.half_closed import BetweenChunks
from spillover.live.http1.heads import CHUNKED, RequestHead
from spillover.live.http1.rules import ADDED_MAX, FIELDS_MAX, Malformed, Rule
from spillover.live.http1.server_connection import ServerConnection
from spillover.live.http1.written import CONTINUE
from spillover.live.overflow.gateway_metrics import HttpByRoute
from spillover.live.overflow.relay import UNSENT_MAX_BYTES, UNSENT_RESUME_BYTES
from spillover.live.overflow.request_log import is_logged, log_turned_away
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.logs import OncePerPeriod
from spillover.model.request import Refusal
from spillover.model.signals.gateway import OTHER

LAST_WORDS_S = 0.1
"""The pause, in seconds, between the last words of an answer that breaks off and the reset, which
could overtake them."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Asked(NamedTuple):
    """The request of a client, and its tenant."""

    head: RequestHead
    tenant: str
    known: KnownRequest | None
    """The known form of the head, if it is remembered."""


class Door(Owner, Protocol):
    """The listener, as a connection needs it."""

    shell: NodeShell
    pseudonym: str
    body_limit_bytes: int
    requests: KnownRequests
    answers: WrittenHeads
    counts: HttpByRoute

    @property
    def way_of(self) -> Callable[[str, str], Ingress]:
        """Returns what headers say of requests that come from an address by a scheme."""

    def watch(self, connection: DoorConnection) -> None:
        """Look at a connection each second, and tell it when it is too late."""

    def let_go(self, connection: DoorConnection) -> None:
        """Forget a connection that has ended."""

    def tenant_of(self, head: RequestHead, address: str) -> str:
        """Returns the tenant of a request. Raises Problem if it belongs to nobody who is let in."""

    def page_of(self, head: RequestHead) -> Page | None:
        """Returns the page of a browser that asks; None if none says that it does."""

    def pass_on(
        self, answer: PassedAnswer, asked: Asked, way: Ingress, body: bytes, received_s: float
    ) -> None:
        """Pass on a request that has come whole. Raises Problem if it is not taken."""


class DoorConnection(ServerConnection):
    """One client. Its requests are passed on one after another."""

    __slots__ = (
        "_answer",
        "_between",
        "_door",
        "_head",
        "_parts",
        "_size_bytes",
        "_tenant",
        "_way",
    )

    def __init__(self, door: Door) -> None:
        super().__init__(door)
        self._door = door
        self._way = Ingress("", "http", door.pseudonym)
        self._head: RequestHead | None = None
        """The head of the request that is read."""
        self._parts: list[bytes] = []
        """The body of the request, while it is read."""
        self._size_bytes = 0
        self._tenant = ""
        self._answer: PassedAnswer | None = None
        """The answer to the request that is under way."""
        self._between: BetweenChunks | None = None
        """The watch that finds out whether a client that has closed its half is still there while a
        body in chunks is under way."""

    # --- what the loop tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(UNSENT_MAX_BYTES, UNSENT_RESUME_BYTES)
        scheme = "http" if transport.get_extra_info("ssl_object") is None else "https"
        client = "" if self.client is None else self.client[0]
        self._way = self._door.way_of(client, scheme)
        self._door.watch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._door.let_go(self)
        if self._between is not None:
            self._between.stop()
        self._forget_body()
        answer, self._answer = self._answer, None
        self._head = None
        if answer is not None:
            answer.client_left()

    def data_received(self, data: bytes) -> None:
        is_new = not (self.is_busy or self._ahead or self._head_bytes.held or self._body)
        if is_new and not (self._is_feeding or self.write_paused or self.is_over):
            found = self._door.requests.find(data)
            if found is not None:
                self.received_s = self._door.clock()
                try:
                    self.begin(found[1])
                    self._pass_on(*found)
                except Exception as error:  # noqa: BLE001 - as in `_feed`
                    self.refuse(error)
                return
        super().data_received(data)

    def waits_half_closed(self) -> bool:
        """Returns True: whether a client has gone for good is found out by beginning the answer."""
        answer = self._answer
        if answer is not None:
            answer.flush()
        if answer and answer.has_begun:
            if answer.is_chunked:
                self.look_between_chunks()
        elif answer:
            self.begin_answer()
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        answer = self._answer
        if answer is not None and answer.flow is not None:
            answer.flow.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        answer = self._answer
        if answer is not None and answer.flow is not None:
            answer.flow.resume()

    def be_the_last(self) -> None:
        """Have the answer under way be the last one here. One that has begun says so only by its
        end."""
        if self._answer is not None and not self.half_closed:
            self._answer.be_the_last()

    # --- reading ------------------------------------------------------------------------------

    def begin(self, head: RequestHead) -> None:
        """Begin a request, as `ServerConnection` says. Raises Problem if it is not taken, and
        Checked."""
        self._head, door = head, self._door
        if len(head.fields) > FIELDS_MAX - ADDED_MAX:
            raise Malformed(Rule.LONG, f"expected at most {FIELDS_MAX - ADDED_MAX} headers")
        if head.method == "OPTIONS" and is_check(head):
            raise Checked
        check_tunnel(head)
        self._tenant = door.tenant_of(head, self._way.client)
        if b"via" in head.names and has_passed(head.fields, self._way.pseudonym):
            detail = "the request was here before: its upstream leads back to this door"
            raise Problem("loop_detected", detail)
        if head.size_bytes > door.body_limit_bytes:
            raise too_large(door.body_limit_bytes, whole=False)
        self._check_room(max(0, head.size_bytes))

    def whole(self, head: RequestHead, body: bytes, data: bytes) -> None:
        self._pass_on(self._door.requests.learn_from(data, head) if data else None, head, body)

    def take(self, piece: bytes, *, is_last: bool) -> None:
        """Take a piece, as `ServerConnection` says. Raises Problem if there is no room for it."""
        head, door = self._head, self._door
        assert head is not None  # noqa: S101 - the head comes before
        if is_last and not self._parts and len(piece) == head.size_bytes:
            self._pass_on(None, head, piece)  # at once, as is usual
            return
        if piece:
            self._parts.append(piece)
            self._size_bytes += len(piece)
            door.shell.room.moving.add(len(piece))
            if self._size_bytes > door.body_limit_bytes:
                raise too_large(door.body_limit_bytes, whole=False)
            if head.size_bytes == CHUNKED:
                self._check_room(0)
        if is_last:
            whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._forget_body()
            if b"spillover-deadline-ms" not in head.names:
                # Who has not said how long it waits for all of it did not mean its own upload.
                self.received_s = door.clock()
            self._pass_on(None, head, whole)

    def await_body(self, head: RequestHead) -> None:
        if head.awaits_continue:
            self.write_later(CONTINUE)

    def _check_room(self, more_bytes: int) -> None:
        """Raise Problem if the cluster has no room for so much more of a body, which is then not
        read."""
        if not self._door.shell.room.moving.has_room(more_bytes):
            self._door.shell.metrics.home_refused(Refusal.MEMORY_FULL)
            raise Problem("queue_full", NO_ROOM, retry_after_s=NO_ROOM_S)

    def _forget_body(self) -> None:
        if self._size_bytes:
            self._door.shell.room.moving.add(-self._size_bytes)
            self._parts, self._size_bytes = [], 0

    def _pass_on(self, known: KnownRequest | None, head: RequestHead, body: bytes) -> None:
        """Pass on a request that has come whole."""
        door = self._door
        self.is_busy, self.due_s = True, math.inf
        answer = self._answer = PassedAnswer(door.shell, self, head, door.answers)
        answer.counts, answer.received_bytes = door.counts[head.method, OTHER], len(body)
        if answer.asked is not None:
            answer.asked.received_s = self.received_s
        if door.leaving_idle_s != math.inf:
            answer.be_the_last()
        try:
            door.pass_on(answer, Asked(head, self._tenant, known), self._way, body, self.received_s)
        except Problem as problem:
            answer.refuse(problem)
        self._head = None

    def refuse(self, error: Exception) -> None:
        """Refuse, as `ServerConnection` says, behind the answers that came before."""
        door = self._door
        door.shell.writes.flush()
        self._forget_body()
        self._body = None
        if isinstance(error, Checked):
            tell_ready(self, door.shell)
            return
        problem = unread(error)
        head = self._head
        method, target = (head.method, head.target) if head else (OTHER, b"")
        page = None if head is None else door.page_of(head)
        self._is_last = True
        door.counts[method, OTHER].statuses[problem.status // 100] += 1
        if is_logged():
            log_turned_away(method, target, problem.status, problem.reason)
        write_problem(self, problem, method, page, keep_alive=False)

    # --- what answers tell --------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def write_later(self, data: Buffer) -> None:
        self._door.shell.writes.write(self.transport, data)

    def writelines(self, parts: tuple[Buffer, ...]) -> None:
        if not self.transport.is_closing():
            self.transport.writelines(parts)

    def look_between_chunks(self) -> None:
        self._between = BetweenChunks(self.transport, self._door.loop)

    def answered(self, *, keep_alive: bool) -> None:
        if self._between is not None:
            self._between.stop()
        self._answer = self._head = None
        super().answered(keep_alive=keep_alive)

    def reset(self, last_words: bytes = b"") -> None:
        """Break off (`ClientLine.reset`), after an attempt to deliver these words."""
        if self.is_gone:
            return
        if last_words:
            self.transport.write(last_words)
            self._door.loop.call_later(LAST_WORDS_S, self._reset)
        else:
            self._reset()

    def _reset(self) -> None:
        """Reset the connection. If it were just closed, a client that reads up to the end would
        take what came for a whole answer."""
        opened = self.transport.get_extra_info("socket")
        if opened is not None and not self.is_gone:
            with contextlib.suppress(OSError):  # uvloop's takes a file descriptor for a moment
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
