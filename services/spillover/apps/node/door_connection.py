"""A client of the service behind a door: its requests are read, passed on one after another, and
answered. The bounds of a connection are kept here; where requests go is in `proxy_door`.

The other readers of HTTP in this house know what they may be asked; this one does not, so it reads
with `live.http1.framing`, as the other end of a passed request does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from spillover.apps.http.exchange import (
    NO_ROOM,
    NO_ROOM_S,
    body_too_slow,
    too_large,
)
from spillover.apps.http.problems import BUG, Problem
from spillover.apps.http.service import Bounds
from spillover.apps.node.door_checks import Checked, tell_ready
from spillover.apps.node.door_pages import Page
from spillover.apps.node.door_problems import not_passed, write_problem
from spillover.apps.node.passed_answers import PassedAnswer
from spillover.live.engine.write_batch import Buffer
from spillover.live.handlers.proxy.known import KnownRequest, KnownRequests, WrittenHeads
from spillover.live.handlers.proxy.onward import ADDED_MAX, Way, check_tunnel, has_passed, is_check
from spillover.live.http1.framing import FIELDS_MAX, Body, HeadBytes, Malformed, TooLong
from spillover.live.http1.half_closed import BetweenChunks, HalfClosed
from spillover.live.http1.heads import CHUNKED, Refused, RequestHead, read_request
from spillover.live.http1.lingering import Lingering
from spillover.live.overflow.gateway_metrics import HttpByRoute
from spillover.live.overflow.relay import UNSENT_MAX_BYTES, UNSENT_RESUME_BYTES
from spillover.live.overflow.request_log import is_logged, log_turned_away
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.addresses import of_socket
from spillover.model.request import Refusal
from spillover.model.signals.gateway import OTHER

AHEAD_MAX_BYTES = 65_536
"""A connection is not read on while more than this has come behind a request that is under way."""

LAST_WORDS_S = 0.1
"""The pause between the last words of an answer that breaks off and the reset, which could overtake
them."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Asked(NamedTuple):
    """What a client asks for, and whose request that is."""

    head: RequestHead
    tenant: str
    known: KnownRequest | None
    """What is known of the head, if it is kept."""


class Door(Protocol):
    """What a connection needs of the listener."""

    shell: NodeShell
    bounds: Bounds
    pseudonym: str
    clock: Callable[[], float]
    body_limit_bytes: int
    loop: asyncio.AbstractEventLoop
    idle_s: float
    """How long a connection is kept that asks nothing."""
    leaving_idle_s: float | None
    """Where clients are to go elsewhere: each answer is the last one of its connection."""
    requests: KnownRequests
    answers: WrittenHeads
    counts: HttpByRoute

    @property
    def way_of(self) -> Callable[[str, str], Way]:
        """Returns what tells of requests that come from an address by a scheme."""

    def watch(self, connection: DoorConnection) -> None:
        """Have it told, each second, when something is too late."""

    def let_go(self, connection: DoorConnection) -> None:
        """It is gone."""

    def tenant_of(self, head: RequestHead, address: str) -> str:
        """Returns whose request it is. Raises Problem where it is nobody's who is let in."""

    def page_of(self, head: RequestHead) -> Page | None:
        """Returns the page of a browser that asks; None where none says that it does."""

    def pass_on(
        self, answer: PassedAnswer, asked: Asked, way: Way, body: bytes, received_s: float
    ) -> None:
        """A request has come whole. Raises Problem where it is not taken."""


class DoorConnection(asyncio.Protocol):
    """One client. Its requests are passed on one after another; while one is under way, what comes
    behind it waits, and is read to see whether the client is still there."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._way = Way("", "http", door.pseudonym)
        self._head_bytes = HeadBytes()
        self._head: RequestHead | None = None
        """The head of the request that is read."""
        self._body: Body | None = None
        """The body of the request, while it is read."""
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._looked_at_bytes = 0
        """How much of the body had come when it was last checked that it does not come too
        slowly."""
        self._tenant = ""
        self._received_s = 0.0
        self._answer: PassedAnswer | None = None
        """The answer to the request that is under way."""
        self._ahead = b""
        """What has come behind it."""
        self._is_feeding = False
        self._is_last = False
        """What is answered now is the last answer; all that comes behind it is thrown away."""
        self._read_paused = False
        self.write_paused = False
        self.half_closed = False
        self._between: BetweenChunks | None = None
        """Finds out whether a client that has closed its half is still there while a body in chunks
        is under way."""
        self._unsent_bytes = 0
        self.due_s = math.inf
        """When something will have taken too long."""

    @property
    def is_gone(self) -> bool:
        return self.transport.is_closing()

    @property
    def is_answering(self) -> bool:
        return self._answer is not None

    @property
    def _is_over(self) -> bool:
        """Whether nothing that comes is read any more."""
        return self._is_last or self.is_gone

    # --- what the loop tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(UNSENT_MAX_BYTES, UNSENT_RESUME_BYTES)
        peer = of_socket(transport.get_extra_info("peername"))
        scheme = "http" if transport.get_extra_info("ssl_object") is None else "https"
        client = "" if peer is None else peer[0]
        self._way = self._door.way_of(client, scheme)
        self._await_request()
        self._door.watch(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - all ends are alike
        self._door.let_go(self)
        if isinstance(self.transport, HalfClosed):
            self.transport.stop()
        if self._between is not None:
            self._between.stop()
        self._forget_body()
        answer, self._answer = self._answer, None
        self._head = None
        self._ahead = b""
        if answer is not None:
            answer.client_left()

    def data_received(self, data: bytes) -> None:
        if self._answer is not None or self._is_feeding or self.write_paused:
            self._ahead += data
            if len(self._ahead) > AHEAD_MAX_BYTES and not self._read_paused:
                self._read_paused = True
                self.transport.pause_reading()
            return
        if self._ahead:  # to be read on in another turn, which has not come yet
            data, self._ahead = self._ahead + data, b""
        self._feed(data)

    def eof_received(self) -> bool:
        """Returns whether to keep the connection: for answers to whole requests. Who has gone for
        good is found out by beginning the first of them."""
        answer = self._answer
        self._door.shell.writes.flush()
        if self._is_last or self._way.scheme == b"https":
            return False  # TLS has no half-closed connections
        if answer is None and not self._ahead:
            return False
        if answer is not None:
            answer.flush()
        self.half_closed = True
        if answer and answer.has_begun:
            if answer.is_chunked:
                self.look_between_chunks()
        elif answer and not isinstance(self.transport, HalfClosed):
            half = HalfClosed(self.transport, self._door.loop)
            self.transport = cast("asyncio.Transport", half)
        return True

    def pause_writing(self) -> None:
        self.write_paused = True
        answer = self._answer
        if answer is not None and answer.flow is not None:
            answer.flow.pause()

    def resume_writing(self) -> None:
        self.write_paused = False
        answer = self._answer
        if answer is None:
            self._read_on()
        elif answer.flow is not None:
            answer.flow.resume()

    def leave(self) -> None:
        """The client is to go elsewhere, or may stay after all, as the door says."""
        if self._answer is not None:
            if self._door.leaving_idle_s is not None:
                self._answer.be_the_last()
        elif self._head is None and not (self._head_bytes.held or self._is_over):
            self._await_request()

    # --- reading ------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        """Go on with what has come, request by request, as long as each is answered at once."""
        self._is_feeding = True
        try:
            while data and not (self._answer or self.write_paused or self._is_over):
                data = self._read_some(data)
                if self._ahead and self._answer is None:
                    data, self._ahead = data + self._ahead, b""
        finally:
            self._is_feeding = False
        if data and not self._is_over:
            self._ahead = data + self._ahead
        if self.half_closed and not (self._answer or self._ahead or self._is_over):
            self.close()  # what is there of another request will never be whole

    def _read_some(self, data: bytes) -> bytes:
        """Read up to the end of a head or of a body. Returns what is behind that."""
        try:
            if self._head is None:
                return self._read_head(data)
            return self._read_body(self._head, data)
        except Problem as problem:
            self._refuse(problem)
        except Checked:
            self._door.shell.writes.flush()
            tell_ready(self, self._door.shell)
        except Refused as error:
            self._refuse(not_passed(error))
        except TooLong as error:
            self._refuse(Problem("head_too_large", str(error)))
        except Malformed as error:
            self._refuse(Problem("malformed", str(error)))
        except Exception:  # noqa: BLE001 - nothing behind this turns a bug into an answer
            _log.exception(Message("internal error", what="a request to be passed on"))
            self._refuse(Problem("internal", BUG))
        return b""

    def _read_head(self, data: bytes) -> bytes:
        head_bytes, door = self._head_bytes, self._door
        is_new = not head_bytes.held
        if is_new:
            data = data.lstrip(b"\r\n") if data[:1] in (b"\r", b"\n") else data
            if not data:
                return b""
            if (found_whole := door.requests.find(data)) is not None:
                self._received_s = door.clock()
                self._begin(found_whole[1])
                self._whole(*found_whole)
                return b""
        found = head_bytes.feed(data)
        self._received_s = now_s = door.clock()
        if found is None:
            self.due_s = now_s + door.bounds.head_s if is_new else self.due_s
            return b""
        lines, rest = found
        head = self._head = read_request(lines)
        if len(head.fields) > FIELDS_MAX - ADDED_MAX:
            raise TooLong(f"expected at most {FIELDS_MAX - ADDED_MAX} headers")
        self._begin(head)
        if head.size_bytes in (0, len(rest)):  # at once, as it mostly comes
            known = door.requests.learn_from(data, head) if is_new else None
            self._whole(known, head, rest if head.size_bytes else b"")
            return b"" if head.size_bytes else rest
        self._body = head.body()
        self.due_s = now_s + door.bounds.body_s
        if rest:
            return self._read_body(head, rest)
        if head.awaits_continue:
            door.shell.writes.write(self.transport, b"HTTP/1.1 100 Continue\r\n\r\n")
        return b""

    def _begin(self, head: RequestHead) -> None:
        """A head has come. Raises Problem where its request is not taken, and Checked."""
        self._head, door = head, self._door
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

    def _read_body(self, head: RequestHead, data: bytes) -> bytes:
        body = self._body
        assert body is not None  # noqa: S101 - its head has come
        piece = body.feed(data)
        if body.done and not self._parts and len(piece) == head.size_bytes:
            self._whole(None, head, piece)  # at once, as it mostly comes
            return body.rest
        if piece:
            self._parts.append(piece)
            self._size_bytes += len(piece)
            self._door.shell.room.moving.add(len(piece))
            if self._size_bytes > self._door.body_limit_bytes:
                raise too_large(self._door.body_limit_bytes, whole=False)
            if head.size_bytes == CHUNKED:
                self._check_room(0)
        if body.done:
            whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._forget_body()
            if b"spillover-deadline-ms" not in head.names:
                # Who has not said how long it waits for all of it did not mean its own upload.
                self._received_s = self._door.clock()
            self._whole(None, head, whole)
            return body.rest
        return b""

    def _check_room(self, more_bytes: int) -> None:
        """A body is read only if there is room for it in the cluster."""
        if not self._door.shell.room.moving.has_room(more_bytes):
            self._door.shell.metrics.home_refused(Refusal.MEMORY_FULL)
            raise Problem("queue_full", NO_ROOM, retry_after_s=NO_ROOM_S)

    def _forget_body(self) -> None:
        if self._size_bytes:
            self._door.shell.room.moving.add(-self._size_bytes)
        self._parts, self._size_bytes, self._body = [], 0, None
        self._looked_at_bytes = 0

    def _whole(self, known: KnownRequest | None, head: RequestHead, body: bytes) -> None:
        """A request has come whole."""
        self.due_s = math.inf
        self._body = None
        answer = self._answer = PassedAnswer(self._door.shell, self, head, self._door.answers)
        answer.counts, answer.received_bytes = self._door.counts[head.method, OTHER], len(body)
        if answer.asked is not None:
            answer.asked.received_s = self._received_s
        if self._door.leaving_idle_s is not None:
            answer.be_the_last()
        try:
            asked = Asked(head, self._tenant, known)
            self._door.pass_on(answer, asked, self._way, body, self._received_s)
        except Problem as problem:
            answer.refuse(problem)
        self._head = None

    def _refuse(self, problem: Problem) -> None:
        """Answer what cannot be read on, behind what was answered before."""
        self._door.shell.writes.flush()
        self._forget_body()
        head = self._head
        method, target = (head.method, head.target) if head else (OTHER, b"")
        page = None if head is None else self._door.page_of(head)
        self._is_last = True
        self._door.counts[method, OTHER].statuses[problem.status // 100] += 1
        if is_logged():
            log_turned_away(method, target, problem.status, problem.reason)
        write_problem(self, problem, method, page, keep_alive=False)

    # --- what answers tell --------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        self.transport.write(data)

    def write_later(self, data: Buffer) -> None:
        self._door.shell.writes.write(self.transport, data)

    def writelines(self, parts: tuple[Buffer, ...]) -> None:
        self.transport.writelines(parts)

    def look_between_chunks(self) -> None:
        self._between = BetweenChunks(self.transport, self._door.loop)

    def answered(self, *, keep_alive: bool) -> None:
        if self._between is not None:
            self._between.stop()
        self._answer = None
        self._head = None
        if self._is_last and not (self.half_closed or self.is_gone):
            self.due_s = math.inf
            lingering = Lingering(self, self.transport, self._door.loop)
            self.transport = cast("asyncio.Transport", lingering)
            return
        if not keep_alive or (self.half_closed and not (self._ahead or self._is_feeding)):
            self.close()
            return
        self._await_request()
        self._read_on()

    def _read_on(self) -> None:
        """Unless the client has not read the last answers: they must not pile up."""
        if not (self._read_paused or self._ahead) or self.write_paused or self._is_over:
            return
        if self._read_paused:
            self._read_paused = False
            self.transport.resume_reading()
        if self._ahead and not self._is_feeding:
            # In another turn, lest a thousand requests in a row be answered within each other.
            self._door.loop.call_soon(self._feed_ahead)

    def _feed_ahead(self) -> None:
        if not (self._answer or self._is_feeding or self.write_paused or self._is_over):
            data, self._ahead = self._ahead, b""
            self._feed(data)

    def reset(self, last_words: bytes = b"") -> None:
        """See `ClientLine.reset`. The words are tried to be brought over before."""
        if self.is_gone:
            return
        if last_words:
            self.transport.write(last_words)
            self._door.loop.call_later(LAST_WORDS_S, self._reset)
        else:
            self._reset()

    def _reset(self) -> None:
        """A connection that is just closed would be a whole answer to who reads up to its end."""
        opened = self.transport.get_extra_info("socket")
        if opened is not None and not self.is_gone:
            with contextlib.suppress(OSError):  # uvloop's takes a file descriptor for a moment
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def close(self) -> None:
        """Close it once all is sent that was written."""
        self._door.shell.writes.flush()
        self.due_s = self._door.clock() + self._door.bounds.unread_s
        self.transport.close()

    # --- bounds -------------------------------------------------------------------------------

    def _await_request(self) -> None:
        self.due_s = self._door.clock() + self._door.idle_s

    def too_late(self, now_s: float) -> None:
        """What was awaited has not come in time."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes and unsent_bytes != self._unsent_bytes:  # it is read, slowly
            self._unsent_bytes = unsent_bytes
            self.due_s = now_s + self._door.bounds.unread_s
        elif self.is_gone or unsent_bytes:
            self.transport.abort()
        elif self._body is not None:
            self._look_at_body(self._door.bounds, now_s)
        elif self._head_bytes.held:
            detail = f"expected the whole head of a request within {self._door.bounds.head_s:g} s"
            self._refuse(Problem("head_too_slow", detail))
        else:
            self.transport.close()

    def _look_at_body(self, bounds: Bounds, now_s: float) -> None:
        """See whether it comes too slowly."""
        if bounds.is_too_slow(self._size_bytes - self._looked_at_bytes):
            self._refuse(body_too_slow(bounds.body_s, bounds.body_bytes_per_s))
        else:
            self._looked_at_bytes = self._size_bytes
            self.due_s = now_s + bounds.body_s
