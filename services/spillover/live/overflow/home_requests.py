"""The place where clients' requests come in: it knows under which name, and who asks for the answer
later.

The rules about names and about what is remembered are in `core.overflow.idempotency`. Each request
that is taken is one entry, which opens when it is accepted and is settled when its one answer is
there. Those who wait for that answer stand among the `waiters`.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from random import Random
from typing import Any

from spillover.core.overflow import events as ev
from spillover.core.overflow.idempotency import (
    NODE_ENDED,
    IdempotencyRecord,
    IdempotencyTable,
)
from spillover.core.overflow.quotas import Quotas
from spillover.live.overflow.relay import Relays, Sink
from spillover.live.overflow.waiters import Waiters
from spillover.model.affinity import SessionWork
from spillover.model.ids import ClusterId, RequestId, tenant_of, told_inside
from spillover.model.request import Answer, Refusal, Request
from spillover.model.trace_context import TraceContext


class HomeRequests:
    """The home's side of all requests. `feed` hands events to the machine, `next_ref` makes the
    refs of visits."""

    def __init__(
        self,
        cluster: ClusterId,
        names: IdempotencyTable,
        next_ref: Callable[[], int],
        feed: Callable[[Any], None],
        waiters: Waiters,
        relays: Relays,
    ) -> None:
        self._cluster = cluster
        self._relays = relays
        self._waiters = waiters
        self._names = names
        self.quotas: Quotas | None = None
        """The quotas of tenants; None where there are none."""
        self.seen: Callable[[Request], SessionWork | None] | None = None
        """Returns what affinity has to know of a request that comes; None where there is no
        affinity."""
        self._next_ref = next_ref
        self._feed = feed
        self._entries: dict[int, IdempotencyRecord] = {}
        self._unconfirmed: dict[int, list[Callable[[], None]]] = {}
        """The callables to call when a request is accepted whose acceptance is not confirmed yet,
        by ref."""
        self.closed = False
        """Whether the node ends, so that nothing is taken any more."""
        # From the system's randomness: no two nodes may make the same names.
        self._random = Random(os.urandom(32))
        self.settled = asyncio.Event()
        """Set whenever an answer has come or been fetched."""
        self.result_s = -math.inf
        """The time of the last answer that came while nobody waited for it."""

    def __len__(self) -> int:
        """Returns the number of requests that are under way."""
        return len(self._entries)

    @property
    def newest(self) -> int:
        """Returns the ref of the newest request that is under way; 0 where there is none."""
        return next(reversed(self._entries), 0)

    def has_up_to(self, ref: int) -> bool:
        """Returns whether a request is under way that is no newer than this one."""
        return next(iter(self._entries), math.inf) <= ref

    def count_types(self) -> Counter[str]:
        """Returns how many requests are under way, by type."""
        return Counter(entry.type for entry in self._entries.values())

    @property
    def unfetched(self) -> int:
        """Returns the number of asynchronous requests whose answers nobody has fetched yet."""
        self._names.expire(time.monotonic())
        return self._names.unfetched

    def lose_results(self) -> list[str]:
        """Drop the answers that nobody has fetched, as the node ends. Returns the names of their
        requests."""
        results = list(map(told_inside, self._names.unfetched_ids()))
        self._names.lost[NODE_ENDED] += len(results)
        return results

    def find(self, request_id: str) -> IdempotencyRecord | None:
        """Returns the entry of this id, if it is under way or its answer is still kept."""
        return self._names.find(request_id, time.monotonic())

    def take(
        self, request: Request, deadline_s: float, *, asynchronous: bool = False
    ) -> IdempotencyRecord | ev.Refuse:
        """Take in a request that is new or may run again; returns its entry, or why it is refused
        at once. A request that came without a name is given one here."""
        ref = self._next_ref()
        if self.closed:
            return ev.Refuse(ref, ev.HOME, Refusal.DRAINING, 0.0)
        if not request.keyed:
            request.id = self._named(request)
        mark = fingerprint(request) if request.keyed else None
        entry = IdempotencyRecord(request, ref, mark, asynchronous=asynchronous)
        self._names.open(entry)
        self._entries[ref] = entry
        if self.quotas is not None:
            self.quotas.take(ref, tenant_of(request.id))
        if self.seen is not None:
            request.asked = self.seen(request)
        self._feed(ev.Arrived(ref, request, deadline_s))
        if entry.refusal is not None:
            return entry.refusal
        if entry.lasting and ref not in self._unconfirmed:
            self._names.accept(entry)
        return entry

    def take_passed(self, request: Request, deadline_s: float, sink: Sink) -> IdempotencyRecord:
        """Take in a request that passes through, while no other one has its name. The sink gets the
        outcome, perhaps before this returns. The answer is not kept."""
        ref = self._next_ref()
        if not request.keyed:
            request.id = self._named(request)
        entry = IdempotencyRecord(request, ref, None, asynchronous=False)
        if self.closed:
            sink.settle(ev.Refuse(ref, ev.HOME, Refusal.DRAINING, 0.0))
            return entry
        self._names.open(entry)
        self._entries[ref] = entry
        self._relays.open(ref, sink)
        if self.quotas is not None:
            self.quotas.take(ref, tenant_of(request.id))
        if self.seen is not None:
            request.asked = self.seen(request)
        self._feed(ev.Arrived(ref, request, deadline_s))
        return entry

    def _named(self, request: Request) -> RequestId:
        """Returns the name that a request without one is given, behind its tenant."""
        return RequestId(f"{request.id}{self._cluster}-{self._random.getrandbits(64):016x}")

    def is_unconfirmed(self, entry: IdempotencyRecord) -> bool:
        """Returns whether the request may still be refused, so that it must not be reported as
        accepted."""
        return entry.ref in self._unconfirmed

    def when_accepted(self, entry: IdempotencyRecord, tell: Callable[[], None]) -> None:
        """Call `tell` once a request that is unconfirmed is accepted; never if it is refused."""
        self._unconfirmed[entry.ref].append(tell)

    def placed(self, ref: int, trace: TraceContext) -> None:
        """Note where a request stands in its trace, if that is not where it came from."""
        self._entries[ref].trace = trace

    def fetch(self, entry: IdempotencyRecord) -> None:
        """Note that an answer has been fetched."""
        self._names.fetch(entry)
        self.settled.set()

    def abandon(self, entry: IdempotencyRecord) -> None:
        """Note that a request's client has gone while nobody else knows the request's name."""
        entry.client_left = True
        self._feed(ev.Cancelled(entry.ref))

    def cancel(self, entry: IdempotencyRecord) -> None:
        """Cancel a request wherever it is; its answer tells how it ended."""
        self._feed(ev.CancelAsked(entry.ref))

    # --- what the machine says ----------------------------------------------------------------

    def confirm(self, command: ev.Confirm) -> None:
        """Note that the acceptance of a request is to be confirmed."""
        self._unconfirmed[command.ref] = []

    def accepted(self, ref: int) -> None:
        """Note that a request's acceptance is confirmed. A neighbor's request is not among
        these."""
        entry = self._entries.get(ref)
        if entry is None:
            return
        if entry.lasting:
            self._names.accept(entry)
        for tell in self._unconfirmed.pop(ref, ()):
            tell()

    def refused(self, command: ev.Refuse) -> IdempotencyRecord:
        """Take out a request that was refused, at once or after its acceptance could not be
        confirmed."""
        ref = command.ref
        entry = self._entries.pop(ref)
        if self.quotas is not None:
            self.quotas.end(ref)
        self._names.withdraw(entry)
        self._unconfirmed.pop(ref, None)
        entry.refusal = command
        self._waiters.tell(ref, command)
        self.settled.set()
        return entry

    def answered(self, ref: int, answer: Answer) -> IdempotencyRecord:
        entry = self._entries.pop(ref)
        if self.quotas is not None:
            self.quotas.end(ref)
        self._names.settle(entry, answer, time.monotonic())
        self._waiters.tell(ref, answer)
        if not entry.fetched:
            self.result_s = entry.ended_s
        self.settled.set()
        return entry

    def close(self) -> None:
        """Take nothing more: the node ends."""
        self.closed = True
        self._entries.clear()


def fingerprint(request: Request) -> bytes:
    """Returns the fingerprint of the work: two requests have the same one if their payloads, byte
    for byte, and their types are equal."""
    digest = sha256(request.work)  # processors have instructions for it
    digest.update(b"\0" + request.type.encode())  # no JSON holds this byte: no two are alike
    return digest.digest()[:16]
