"""Errors of ours at the door of a service: how they differ from the service's own, and how they are
written. `door_connection` and `passed_answers` know which one is given when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spillover.apps.http.problems import MAY_HAVE_RUN, Problem
from spillover.apps.node.door_pages import Page
from spillover.live.engine.write_batch import Buffer
from spillover.live.http1.written import CLOSE, STATUS_LINE, answer_head, named_lines

_PROXY_ERRORS = {
    "queue_full": "connection_limit_reached",
    "blocked": "connection_limit_reached",
    "draining": "destination_unavailable",
    "no_servers": "destination_unavailable",
    "deadline_exceeded": "http_response_timeout",
    "handler_failed": "http_response_incomplete",
    "outcome_unknown": "connection_terminated",
    "unknown_type": "proxy_configuration_error",
    "loop_detected": "proxy_loop_detected",
    "internal": "proxy_internal_error",
    "cancelled": "proxy_internal_response",
    "conflict": "proxy_internal_response",
}
"""Errors of a proxy (RFC 9209, section 2.3) by reason; all other reasons are faults of the
request."""

_AGAIN = b"the work may have run: to send the request again may run it again"
_NOT_RUN = b"the work has not run"


class ClientLine(Protocol):
    """The part of a connection that an answer needs."""

    write_paused: bool
    """Whether more is unsent than should be."""
    half_closed: bool
    """Whether the client sends nothing more, and may be gone."""

    @property
    def is_gone(self) -> bool:
        """Returns whether nothing that is written now can arrive."""

    def write(self, data: Buffer) -> None:
        """Write this now, unless the client has gone."""

    def write_later(self, data: Buffer) -> None:
        """Write at the end of this turn, together with what others write."""

    def writelines(self, parts: tuple[Buffer, ...]) -> None:
        """Write these now, unless the client has gone."""

    def look_between_chunks(self) -> None:
        """Find out from time to time whether the client has gone: a body in chunks follows."""

    def answered(self, *, keep_alive: bool) -> None:
        """Note that the whole answer is written."""

    def reset(self, last_words: bytes = b"") -> None:
        """Break off, so that nobody takes what was sent for an answer."""


def proxy_status(problem: Problem) -> bytes:
    """Returns the header that marks errors of ours, unlike those of the service. Where the reason
    leaves it open, the header also says whether the same request, sent again, would run the work
    again."""
    error = _PROXY_ERRORS.get(problem.reason, "http_request_error").encode()
    details = b""
    if problem.reason in MAY_HAVE_RUN:
        details = b'; details="%b"' % (_AGAIN if problem.may_have_run else _NOT_RUN)
    return b"spillover; error=%b%b" % (error, details)


def write_problem(
    line: ClientLine,
    problem: Problem,
    method: str,
    page: Page | None,
    *,
    keep_alive: bool,
    is_old: bool = False,
) -> None:
    """Answer with an error of ours, which the page that asks may read, if the service lets it."""
    if line.is_gone:
        return
    allowed = None if page is None else page.allowed_before()
    if allowed is not None:
        _write(line, 204, allowed, None, b"", keep_alive=keep_alive, is_old=is_old)
        return
    body, fields = problem.body(), problem.all_headers()
    if page is not None:
        fields += page.may_read()
    fields.append((b"proxy-status", proxy_status(problem)))
    keep_alive = keep_alive and CLOSE not in fields
    told = [field for field in fields if field != CLOSE], len(body)
    sent = b"" if method == "HEAD" else body
    _write(line, problem.status, *told, sent, keep_alive=keep_alive, is_old=is_old)


def _write(
    line: ClientLine,
    status: int,
    fields: Sequence[tuple[bytes, bytes]],
    size_bytes: int | None,
    body: bytes,
    *,
    keep_alive: bool,
    is_old: bool,
) -> None:
    """Write an answer, unless its head would be read as other lines than these: some of them are
    the words of a service, or of a neighbor."""
    try:
        told = STATUS_LINE[status], named_lines(fields), size_bytes
    except ValueError:
        line.reset()
        return
    line.write(answer_head(*told, keep_alive=keep_alive, is_old=is_old) + body)
    line.answered(keep_alive=keep_alive)
