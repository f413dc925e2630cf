"""One request that passes through, as its client sees the answer: its head, its body as it comes,
and an end that says whether it was whole. A failure before that is a problem of ours.

`proxy_door` takes requests in, and `live.http1.heads` knows what heads mean.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from spillover.apps.http.problems import Problem
from spillover.apps.node.answers import node_ended, problem_of
from spillover.apps.node.door_pages import Page
from spillover.apps.node.door_problems import ClientLine, write_problem
from spillover.apps.node.passed_told import count_end, log_end
from spillover.apps.node.repeats import KeyRepeat
from spillover.core.overflow.events import SoFar
from spillover.core.overflow.idempotency import IdempotencyRecord
from spillover.live.handlers.proxy.known import Cut, WrittenHeads
from spillover.live.handlers.proxy.known import cut as cut_head
from spillover.live.handlers.proxy.unqueued import NotWhole, UnqueuedCall
from spillover.live.http1.framing import count_lines
from spillover.live.http1.heads import CHUNKED, NO_BODY, RequestHead, tokens, values
from spillover.live.http1.rules import LENGTH_DIGITS_MAX
from spillover.live.http1.written import (
    TO_THE_END,
    answer_head,
    named_lines,
    size_sent,
    status_line,
)
from spillover.live.overflow.gateway_metrics import NOT_COUNTED
from spillover.live.overflow.relay import CANCELLED, TRUNCATED, WHOLE, Flow
from spillover.live.overflow.request_log import Asked, is_logged
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.waiters import Told
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.causes import Cause
from spillover.model.ids import name_of
from spillover.model.passed import Fields, PassedHead, length_at, with_length
from spillover.model.request import Answer, Outcome, Request

JOINED_BYTES = 16_384
"""The size, in bytes, below which a piece is copied between the ends of its chunk."""

UNQUEUED_RETRY_S = 1.0
"""The time, in seconds, after which a request beside the servers may be tried again. It does not
wait in the queue, by which this is estimated for others."""

_OF_A_HOP = frozenset({b"transfer-encoding", b"connection"})
_OF_A_HOP_OR_NOBODY = _OF_A_HOP | {b"trailer"}
_EVENTS = b"text/event-stream"
_BLANK_LINES = b"\n\n", b"\n\r\n", b"\r\r", b"\r\r\n", b"\n\r", b"\r\n\r"
"""The ends of an event: two line ends, each with LF, CR, or both."""
_OF_OURS = (
    b"Spillover-Request-Id: %b\r\nSpillover-Path: %b\r\n"
    b"Server-Timing: queued;dur=%.3f, network;dur=%.3f, service;dur=%.3f\r\n"
)

OURS_NUMBER = 3

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


def _is_of_events(head: PassedHead) -> bool:
    """Returns whether the body is text to which an event can be added."""
    codings = [one for value in values(head.headers, b"content-encoding") for one in tokens(value)]
    return all(coding == b"identity" for coding in codings) and any(
        value.lower().startswith(_EVENTS) for value in values(head.headers, b"content-type")
    )


def _last_event(problem: str) -> bytes:
    """Returns an event that says why nothing follows, as clients of OpenAI's API know it: by its
    data alone, which they take for an error whatever the earlier events are called."""
    error = {"message": problem, "type": "server_error", "code": "handler_failed"}
    return b"data: %b\n\n" % msgspec.json.encode({"error": error})


class PassedAnswer:
    """The sink of one request (`live.overflow.relay`)."""

    __slots__ = (
        "_heads",
        "_is_old",
        "_keep_alive",
        "_left_bytes",
        "_line",
        "_method",
        "_passed",
        "_shell",
        "_tail",
        "_takes_trailers",
        "_unwritten",
        "asked",
        "call",
        "counts",
        "entry",
        "flow",
        "has_begun",
        "is_chunked",
        "is_over",
        "own_name",
        "page",
        "received_bytes",
        "repeat",
        "request",
        "sent_bytes",
        "so_far",
        "status",
        "tells_events",
    )

    def __init__(
        self, shell: NodeShell, line: ClientLine, head: RequestHead, heads: WrittenHeads
    ) -> None:
        self._shell = shell
        self._line = line
        self._heads = heads
        # Nothing more of the question is kept for as long as the answer may take.
        self._method = head.method
        self._is_old = head.is_old
        self._takes_trailers = head.takes_trailers
        self._keep_alive = head.keep_alive
        self.is_chunked = False
        self._passed: PassedHead | None = None
        """The head of the service's answer."""
        self._left_bytes: int | None = None
        """The number of bytes that a body of stated length still lacks; None for others."""
        self._unwritten = b""
        """The head, and short pieces that come with it, until the end of the loop's turn: most
        small answers are whole by then, and each write wakes the client."""
        self.request: Request | None = None
        """The request as it is taken: it may be answered before its entry is there."""
        self.own_name = ""
        """The name of a request that is passed on beside the servers; empty for others."""
        self.entry: IdempotencyRecord | None = None
        """The entry of a request that was taken; None before."""
        self.call: UnqueuedCall | None = None
        """The call of a request that is passed on beside the servers; None for others."""
        self.page: Page | None = None
        """The page of a browser that asks and tells its origin; None for other clients."""
        self.repeat: KeyRepeat | None = None
        """The wait for another request under the same key to end; None while there is none."""
        self.flow: Flow | None = None
        self.has_begun = False
        self.is_over = False
        # For `passed_told`:
        self.asked = Asked(head.method, head.target.decode("latin-1")) if is_logged() else None
        self.counts = NOT_COUNTED
        self.received_bytes = self.sent_bytes = self.status = 0
        self.so_far: SoFar | None = None
        self.tells_events = False
        """Whether a stream of events that breaks off ends with one that says so."""
        self._tail = b"\n\n"
        """The end of that stream so far: an event may also begin at its very beginning."""

    @property
    def name(self) -> str:
        """Returns the name of the request, empty before it has one."""
        return self.own_name if self.request is None else name_of(self.request.id)

    # --- the sink -----------------------------------------------------------------------------

    def hint(self, head: PassedHead) -> None:
        """Write an interim answer to a client that can read one (RFC 9110, 15.2), unless its answer
        was begun early (0033)."""
        line = self._line
        if self._is_old or self.is_over or line.half_closed or line.write_paused or line.is_gone:
            return
        try:
            told = status_line(head.status, head.reason), named_lines(head.headers)
        except ValueError:
            return
        self._shell.writes.flush()  # what was answered before comes first
        line.write(answer_head(*told, None, keep_alive=True, is_old=False))

    def begin(self, head: PassedHead, so_far: SoFar, flow: Flow) -> None:
        self.flow = flow
        self.has_begun = True
        self.so_far = so_far
        if self.asked is not None:
            self.asked.first_byte_now()
        if self._line.is_gone:
            return
        try:
            self._unwritten = self._written(head, so_far, flow)
        except ValueError:
            self._break_off(cause=Cause.UPSTREAM_ANSWER)
            return
        self._passed = head
        self.status = head.status
        if self.page is not None:  # no page may read anything by a head that cannot be sent
            self.page.answered(head)
        if not flow.is_whole:
            asyncio.get_running_loop().call_soon(self.flush)
        if self._line.write_paused:
            flow.pause()

    def piece(self, data: bytes) -> None:
        size_bytes = len(data)
        if self.is_over or not size_bytes:  # an empty chunk would be the last one
            return
        if self._left_bytes is not None:
            self._left_bytes -= size_bytes
            if self._left_bytes < 0:
                self._break_off(cause=Cause.UPSTREAM_ANSWER)
                return
        self.sent_bytes += size_bytes
        if self.tells_events:
            self._tail = (self._tail + data[-4:])[-4:]
        is_short = size_bytes < JOINED_BYTES
        if self._unwritten:
            if is_short and len(self._unwritten) < JOINED_BYTES:
                framed = b"%x\r\n%b\r\n" % (size_bytes, data) if self.is_chunked else data
                self._unwritten += framed
                return
            self.flush()
        line = self._line
        if not self.is_chunked:
            line.write(data)
        elif is_short:
            line.write(b"%x\r\n%b\r\n" % (size_bytes, data))
        else:
            line.writelines((b"%x\r\n" % size_bytes, data, b"\r\n"))

    def flush(self) -> None:
        """Write what has waited for the rest of its turn: the head, and what came with it."""
        unwritten, self._unwritten = self._unwritten, b""
        if not unwritten or self._line.is_gone:
            return
        self._line.write(unwritten)
        if self._line.half_closed and self.is_chunked:
            self._line.look_between_chunks()

    def end(self, trailers: Fields, answer: Answer | None) -> None:
        if self.is_over or self._line.is_gone:
            return
        if self._left_bytes:
            self._break_off(cause=Cause.UPSTREAM_ANSWER)
            return
        last = b"0\r\n\r\n" if self.is_chunked else b""
        if last and trailers and self._takes_trailers:
            try:
                last = b"0\r\n%b\r\n" % named_lines(trailers)
            except ValueError:  # a neighbor must not write a second answer
                self._break_off(cause=Cause.UPSTREAM_ANSWER)
                return
        if self._unwritten:
            unwritten, self._unwritten = self._unwritten, b""
            self._line.write_later(unwritten + last)
        elif last:
            self._line.write(last)
        self.is_over = True
        if self._line.half_closed and self.entry is not None:
            self.entry.client_left = True  # perhaps
        counts = self.counts  # as `count_end`, on the way of most requests
        counts.statuses[self.status // 100] += 1
        counts.received_bytes += self.received_bytes
        counts.sent_bytes += self.sent_bytes
        if self.asked is not None:
            log_end(self, self.asked, WHOLE, answer)
        self._line.answered(keep_alive=self._keep_alive)

    def break_off(self, answer: Answer | None) -> None:
        if not self.is_over:
            cause = Cause.NODE if answer is None else None
            self._break_off(None if answer is None else answer.problem, answer, cause=cause)

    def settle(self, told: Told) -> None:
        if told is not None:
            answer = told if isinstance(told, Answer) else None
            self.refuse(problem_of(self.name, told), answer)
            return
        has_not_run = self.entry is None or self._shell.machine.surely_never_ran(self.entry.ref)
        self.refuse(node_ended(self.name, has_not_run=has_not_run), cause=Cause.NODE)

    def taken(self, entry: IdempotencyRecord) -> None:
        """Note the entry of the request, which is under way or has already ended."""
        self.repeat = None
        self.entry = entry

    def be_the_last(self) -> None:
        """Have the answer be the last on its connection; one that has begun cannot say so any
        more."""
        self._keep_alive &= self.has_begun

    def client_left(self) -> None:
        """Cancel the request: nobody waits for its answer any more."""
        if not self.is_over:
            self.is_over = True
            count_end(self, CANCELLED if self.has_begun else None, cause=Cause.CLIENT)
        if self.entry is not None:
            self._shell.requests.home.abandon(self.entry)
        elif self.call is not None:
            self.call.cancel()
        elif self.repeat is not None:
            self.repeat.cancel()

    def unqueued_ended(self, came_to: Fields | NotWhole) -> None:
        """End the answer to a request beside the servers, which is whole or not."""
        if not isinstance(came_to, NotWhole):
            self.end(came_to, None)
        elif self.has_begun:
            if not self.is_over:
                self._break_off(came_to.detail, cause=came_to.cause)
        else:
            retry_after_s = UNQUEUED_RETRY_S if came_to.reason == "no_servers" else None
            problem = Problem(came_to.reason, came_to.detail, self.name, retry_after_s)
            self.refuse(problem, cause=came_to.cause)

    # ------------------------------------------------------------------------------------------

    def refuse(
        self, problem: Problem, answer: Answer | None = None, cause: Cause | None = None
    ) -> None:
        """Answer with a problem: nothing has begun, and nothing will."""
        if not self.is_over:
            self.is_over = True
            problem.is_keyed = self.request is not None and self.request.keyed
            self.status = 0 if self._line.is_gone else problem.status
            count_end(self, None, answer, cause, problem)
            self._shell.writes.flush()  # what was answered before comes first
            told = {"keep_alive": self._keep_alive, "is_old": self._is_old}
            write_problem(self._line, problem, self._method, self.page, **told)

    def _written(self, head: PassedHead, so_far: SoFar, flow: Flow) -> bytes:
        """Returns the head as it is sent. Raises ValueError if it cannot be."""
        ours = self._of_ours(so_far)
        known = None if self._is_special else self._heads.find(head)
        if known is not None and known.is_chunked:
            self.is_chunked = True
            return known.cut.whole(b"", ours)
        if known is not None and flow.is_whole:
            self._left_bytes = size_bytes = flow.size_bytes
            return known.cut.whole(b"%d" % size_bytes, ours)
        at = length_at(head.headers)
        is_empty = at is not None and not head.headers[at][1]
        if is_empty and not flow.is_whole:
            raise ValueError("expected the length of an answer")
        told = with_length(head.headers, flow.size_bytes) if is_empty else head.headers
        fields = self._kept(head.status, told)
        start, lines = status_line(head.status, head.reason), named_lines(fields)
        ends = {"keep_alive": self._keep_alive, "is_old": self._is_old}
        if self.is_chunked:
            before = answer_head(start, lines, CHUNKED, **ends)[:-2]
            if fields is told and not (self._takes_trailers or self._is_special):
                self._heads.learn(head, Cut(before, b""), is_chunked=True)
            return b"%b%b\r\n" % (before, ours)
        written = answer_head(start, lines + ours, None, **ends)
        if is_empty and fields is told and not self._is_special:
            found = cut_head(written, start[:-2], fields, at, ours)
            if found is not None and head.status not in NO_BODY:
                self._heads.learn(head, found)
        return written

    @property
    def _is_special(self) -> bool:
        """Returns whether an answer is written in another way than to most clients."""
        return self._is_old or not self._keep_alive or self._method == "HEAD"

    def _kept(self, status: int, fields: Fields) -> Fields:
        """Returns the fields as they are sent, and decides how the body is. Raises ValueError."""
        names = [name.lower() for name, _ in fields]
        lengths = values(fields, b"content-length") if b"content-length" in names else []
        told = lengths[0] if lengths else b"0"
        if len(lengths) > 1 or not told.isdigit() or len(told) > LENGTH_DIGITS_MAX:
            raise ValueError("expected one length of an answer")
        length = int(told) if lengths else None
        size_bytes = size_sent(self._method, status, length, is_old=self._is_old)
        self.is_chunked = size_bytes == CHUNKED
        self._left_bytes = None if size_bytes < 0 else size_bytes
        self._keep_alive &= size_bytes != TO_THE_END
        dropped = _OF_A_HOP if self.is_chunked and self._takes_trailers else _OF_A_HOP_OR_NOBODY
        if not dropped.isdisjoint(names):
            fields = tuple([field for field in fields if field[0].lower() not in dropped])
        return fields

    def _of_ours(self, so_far: SoFar) -> bytes:
        """Returns the fields that the node adds. Raises ValueError if a neighbor has told invalid
        ones."""
        lines = _OF_OURS % (
            self.name.encode(),
            ",".join(so_far.path).encode(),
            so_far.queued_s * 1e3,
            so_far.network_s * 1e3,
            so_far.service_s * 1e3,
        )
        if count_lines(lines) != OURS_NUMBER:
            raise ValueError("expected the path of an answer")
        return lines

    def _break_off(
        self, problem: str | None = None, answer: Answer | None = None, cause: Cause | None = None
    ) -> None:
        """Break the answer off, so that its reader sees that it is not whole."""
        self.flush()
        self.is_over = True
        was_cancelled = answer is not None and answer.outcome is Outcome.CANCELLED
        count_end(self, CANCELLED if was_cancelled else TRUNCATED, answer, cause)
        words = b""
        passed = self._passed
        is_open = (
            self.tells_events and self._left_bytes is None and self._tail.endswith(_BLANK_LINES)
        )
        if is_open and passed and _is_of_events(passed):
            words = _last_event(problem or "the answer broke off before its end")
            words = b"%x\r\n%b\r\n" % (len(words), words) if self.is_chunked else words
        _log.info(Message("answer broken off", request_id=self.name, reason=problem))
        if self.entry is not None and not self._line.is_gone:
            self._shell.requests.home.abandon(self.entry)
        self._line.reset(words)
