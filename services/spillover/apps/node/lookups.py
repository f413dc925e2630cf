"""The look-ups `GET /requests/{id}`: where a request is, or how it ended; at once, or when it has
ended.

A client that waits costs no task: the machine's answer, the node's timer or the end of the
connection calls back. `request_view` knows what is shown of a request.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

import msgspec

from spillover.apps.http.exchange import Exchange
from spillover.apps.http.problems import Problem
from spillover.apps.node.answers import (
    JSON_LINE,
    EncodedOnce,
    answer_internal_error,
    node_ended,
    problem_of,
)
from spillover.apps.node.preferences import read_preferences, read_wait_ms
from spillover.apps.node.request_view import encode_view, ended_view, visit_view
from spillover.apps.node.waiting import WaitingClient
from spillover.core.overflow.idempotency import IdempotencyRecord
from spillover.core.overflow.visit import Visit
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.waiters import Told
from spillover.model.ids import request_id_of
from spillover.model.request import Answer

UNKNOWN = "no request of this name is known here, or no longer"

LOOKUP_PREFIX = "/requests/"
"""The path before a request's name."""

LOOKUP_METHODS = ("GET", "HEAD")


LOOKED_AT = b"head"
"""The method that a sibling names if its client has asked by HEAD. The sibling asks by GET, and the
result counts as given to nobody."""


class _Wait(NamedTuple):
    """The time to wait, and the line about a preference that was followed."""

    s: float = 0.0
    lines: bytes = b""


class Lookups:
    """The look-ups of one node. The home of a request tells all of it; other clusters tell what
    they know of the requests that they hold."""

    def __init__(self, shell: NodeShell) -> None:
        self._shell = shell
        self._encoded = EncodedOnce(asyncio.get_running_loop())

    def serve(self, exchange: Exchange, tenant: str) -> None:
        """Answer a look-up of this tenant, now or later. Raises Problem."""
        name = exchange.path.removeprefix(LOOKUP_PREFIX)
        if not name:
            expected = "POST /requests, or GET or DELETE /requests/{id}"
            detail = f"{exchange.method} {exchange.path}: expected {expected}"
            raise Problem("not_found", detail)
        wait = _Wait() if exchange.method == "HEAD" else _read_wait(exchange)
        request_id = request_id_of(tenant, name)
        entry = self._shell.requests.home.find(request_id)
        if entry is not None:
            self._serve_entry(exchange, entry, wait)
            return
        visit = self._shell.requests.visit_of(request_id)
        if visit is None:
            raise Problem("unknown_request", UNKNOWN, name)
        self._serve_visit(exchange, visit, wait)

    def _serve_entry(self, exchange: Exchange, entry: IdempotencyRecord, wait: _Wait) -> None:
        if entry.answer is None and wait.s:
            waiting = WaitingClient(
                entry.ref,
                partial(self._entry_ended, exchange, entry, wait.lines),
                partial(self._tell_entry, exchange, entry, wait.lines),
            )
            if self._begin(waiting, exchange, wait):
                return
            wait = _Wait()  # too many wait: the preference is not followed
        self._tell_entry(exchange, entry, wait.lines)

    def _serve_visit(self, exchange: Exchange, visit: Visit, wait: _Wait) -> None:
        if wait.s:
            waiting = WaitingClient(
                visit.ref,
                partial(self._tell_visit, exchange, visit, wait.lines),
                partial(self._tell_visit, exchange, visit, wait.lines, None),
            )
            if self._begin(waiting, exchange, wait):
                return
            wait = _Wait()
        self._tell_visit(exchange, visit, wait.lines, None)

    def _begin(self, waiting: WaitingClient, exchange: Exchange, wait: _Wait) -> bool:
        if not waiting.begin(self._shell, exchange, self._shell.now_s + wait.s):
            return False
        exchange.headers.clear()  # these are read, and the larger part of what waits
        return True

    # --- telling: called by the shell or a timer, which a bug in here must not bring down -----

    def _entry_ended(
        self, exchange: Exchange, entry: IdempotencyRecord, lines: bytes, told: Told
    ) -> None:
        if isinstance(told, Answer):
            self._tell_entry(exchange, entry, lines)
            return
        # Nothing more will be known of the request: the node ends, or it is refused after all.
        try:
            if told is None:
                has_not_run = self._shell.machine.surely_never_ran(entry.ref)
                problem = node_ended(entry.name, has_not_run=has_not_run)
            else:
                problem = problem_of(entry.name, told)
            shown = ended_view(entry, problem)
            exchange.answer_raw(200, JSON_LINE + lines, msgspec.json.encode(shown))
        except Exception:  # noqa: BLE001 - see above
            answer_internal_error(self._shell, exchange, entry.id)

    def _tell_entry(self, exchange: Exchange, entry: IdempotencyRecord, lines: bytes) -> None:
        try:
            encode = partial(encode_view, self._shell, entry)
            if entry.answer is None:
                body = encode()
            else:
                # By HEAD there is no body.
                if exchange.method != "HEAD" and exchange.asked_as != LOOKED_AT:
                    self._shell.requests.home.fetch(entry)
                body = self._encoded.body(entry.answer, encode)
            exchange.answer_raw(200, JSON_LINE + lines, body)
        except Exception:  # noqa: BLE001 - see above
            answer_internal_error(self._shell, exchange, entry.id)

    def _tell_visit(self, exchange: Exchange, visit: Visit, lines: bytes, told: Told) -> None:
        """Answer with how a visit of a neighbor's request has ended or, if `told` is no answer,
        with how it stands now."""
        try:
            answer = told if isinstance(told, Answer) else None
            shown = msgspec.json.encode(visit_view(self._shell, visit, answer))
            exchange.answer_raw(200, JSON_LINE + lines, shown)
        except Exception:  # noqa: BLE001 - see above
            answer_internal_error(self._shell, exchange, visit.request.id)


def _read_wait(exchange: Exchange) -> _Wait:
    """Returns how long to wait: by the parameter, else by the preference. Raises Problem
    `invalid`."""
    wait_ms = read_wait_ms(exchange.query) if exchange.query else None
    if wait_ms is not None:
        return _Wait(wait_ms / 1e3)
    values = [value for name, value in exchange.headers if name == b"prefer"]
    wait_s = read_preferences(b",".join(values)).wait_s if values else None
    if wait_s is None:
        return _Wait()
    return _Wait(float(wait_s), b"preference-applied: wait=%d\r\n" % wait_s)
