"""One passed request on its way to a service: it goes out whole, its answer is handed on as it
comes. Any method, interim answers, trailers, and answers that end with their connection.

Which connection, and how it is read, is the business of `live.http1`; what the ends mean, that of
`handler`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spillover.live.handlers.proxy.onward import at_the_door, passed_head
from spillover.live.http1.heads import NO_BODY, AnswerHead
from spillover.live.http1.known_heads import NOT_KEPT
from spillover.live.http1.outgoing import OutgoingExchange, Response
from spillover.model.passed import Fields, PassedHead, lengthless


@dataclass(slots=True, eq=False, kw_only=True)
class PassedExchange(OutgoingExchange):
    """`on_begin` with each interim head and once with the final one, `on_piece` with its body as it
    comes, and `on_end` with a Response (without the body) if it came whole. Where it `takes_whole`,
    an answer that is there at once is told by `on_end` alone, as `at_once`: the head, perhaps with
    an empty length, and the body."""

    on_begin: Callable[[PassedHead], None]
    on_piece: Callable[[bytes], None]
    sent_head: bytes = b""
    """The head with which it was asked for, until the head of the answer has come."""
    takes_whole: bool = False
    trailers: Fields = ()
    has_begun: bool = False
    """True once the head has come."""
    status: int = 0

    def interim(self, answer: AnswerHead) -> None:
        if answer.status != 100:  # which is for who asks to be asked: the door
            self.on_begin(passed_head(answer))

    def begin(self, answer: AnswerHead, piece: bytes) -> None:
        head = at_the_door(passed_head(answer), self.url, self.sent_head)
        self.begin_known(head, piece, is_whole=self.takes_whole and answer.body.done)

    def begin_known(self, meaning: PassedHead, piece: bytes, *, is_whole: bool) -> None:
        self.has_begun, self.status, self.sent_head = True, meaning.status, b""
        if is_whole:
            self.at_once = meaning, piece
            return
        connection = self.connection
        self.on_begin(meaning)
        if piece and self.connection is connection:
            self.on_piece(piece)

    def take(self, piece: bytes) -> None:
        self.on_piece(piece)

    def whole(self, trailers: Fields, received_s: float) -> None:
        if self.at_once is not None:
            self.has_begun = True
            self.status = self.at_once[0].status
        self.trailers = trailers
        self.end(Response(self.status, {}, b"", self.sent_s, received_s))

    def meaning_of(self, answer: AnswerHead) -> PassedHead | None:
        """See `OutgoingExchange.meaning_of`: the head without the digits of its length."""
        if not self.takes_whole or self.method == "HEAD" or answer.status in NO_BODY:
            return None
        head = passed_head(answer)
        template = lengthless(head.headers, answer.length or b"")
        return None if template is None else _kept(PassedHead(head.status, head.reason, template))

    def meaning_of_stream(self, answer: AnswerHead) -> PassedHead | None:
        if not self.takes_whole or self.method == "HEAD" or answer.status in NO_BODY:
            return None
        return _kept(passed_head(answer))


def _kept(head: PassedHead) -> PassedHead | None:
    """Returns the head, unless it is not to be known again."""
    names = {name.lower() for name, _ in head.headers}
    # What a location is to the client depends on whom it has asked.
    return None if b"location" in names or not NOT_KEPT.isdisjoint(names) else head
