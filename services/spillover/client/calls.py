"""The carrier of a client's requests to nodes: connections, attempts, and cancels of requests that
nobody waits for any more. Users call `async_client`; `retrying` decides when to try again, and
`wire` knows the messages."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, TypeVar, cast

from spillover.client import wire
from spillover.client.call import Call, Header, Stats, may_go_on
from spillover.client.clusters import ClusterLearner
from spillover.client.nodes import Nodes
from spillover.client.retrying import RequestAttempts, Retries, RetryBudget
from spillover.client.slots import Slots
from spillover.live.http1.blocking import BODY_MAX_BYTES, BlockingClient
from spillover.live.http1.client import HttpClient
from spillover.live.http1.outgoing import OutgoingRequest, Response
from spillover.live.http1.trust import Trust
from spillover.model.errors import (
    Cancelled,
    Expired,
    NotDelivered,
    OutcomeUnknown,
    PeerError,
    Refused,
)
from spillover.policy.backoff import backoff_s

CONNECT_S = 2.0
IDLE_S_MAX = 4.0
"""The longest time, in seconds, for which a connection is kept idle. Servers keep theirs for longer
(5 s is usual), so that none closes as it is used."""
USER_TIMEOUT_S = 10.0
ANSWER_LIMIT_BYTES = 1 << 30
"""The longest answer, in bytes. Nodes bound their answers; this bounds those of other servers."""

GRACE_S = 1.0
"""The time, in seconds, beyond the deadline for which the client waits for the node's own answer
that it has passed."""
ASK_S = 5.0
"""The time, in seconds, within which a look-up is answered, beyond the time that it may wait; so is
a cancel, which waits 1 s for another cluster."""
PARTING_S = 5.0
"""The time, in seconds, for all cancels together when the client is closed."""
FIRST_PARTING_WAIT_S = 0.02

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Read = Callable[[str, Response], T]
"""A function (url, response) that returns the meaning of a node's answer, and raises PeerError for
an answer of no node."""


class ClientCalls:
    """The calls of one client. They belong to the loop in which the first one is made."""

    def __init__(
        self,
        nodes: Nodes,
        headers: Sequence[Header],
        retries: Retries,
        connections_max: int,
        trust: Trust,
    ) -> None:
        self.nodes = nodes
        self._headers = headers
        self._trust = trust
        self._retries = retries
        self._connections_max = connections_max
        self._rng = Random()
        self._clients: dict[str, HttpClient] = {}
        self._blocking: dict[str, BlockingClient] = {}
        self._clusters = ClusterLearner(nodes, self._client)
        self._slots: Slots | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process: int | None = None
        self._under_way: set[Call] = set()
        self._partings: set[asyncio.Task[None]] = set()
        self._closed = False
        self.on_begin: Callable[[], None] = lambda: None
        """This is called in the loop of the first call, before it."""
        self._requests = self._answered = self._retried = self._failed = self._called_off = 0

    @property
    def stats(self) -> Stats:
        counts = (self._requests, self._answered, self._failed, self._retried, self._called_off)
        return Stats(*counts, len(self._under_way))

    async def carry(self, call: Call, read: Read[T]) -> T:
        """Have a node take the request, by as many attempts as it may have. Raises PeerError."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._closed:
            self._begin(loop)
        url = self.nodes.choose(time.monotonic()) or self.nodes.current
        self._budget.earn()
        self._requests += 1
        return await self._carry_on(url, call, read)

    def carry_here(self, call: Call, read: Read[T], run: Run) -> T:
        """Do the same as `carry` for a thread that waits. Where nothing is in its way, the first
        attempt is made here, over a socket that blocks; `run` has the loop do all that may come
        after it."""
        if self._loop is None:
            run(self._begin_once())
        url = self.nodes.current
        slots = self._slots
        is_plain = url.startswith("http://") and len(call.body) <= BODY_MAX_BYTES
        if self._closed or slots is None or not (is_plain and self.nodes.is_calm and slots.take()):
            return cast("T", run(self.carry(call, read)))
        self._budget.earn()
        self._requests += 1  # one bytecode after another, between which no thread is changed
        try:
            came_to = self._send_here(url, call)
            try:
                if isinstance(came_to, Response):
                    self._clusters.note(url, came_to)
                    result = read(url, came_to)
                    self._answered += 1
                    return result
            except PeerError:
                pass  # whether it is sent again is decided in the loop
        except BaseException:  # Ctrl-C
            if self._loop is not None and not self._closed:
                self._loop.call_soon_threadsafe(self._abandon, call)
            raise
        finally:
            self._under_way.discard(call)
            slots.give_back()
        if isinstance(came_to, Cancelled):
            raise came_to
        return cast("T", run(self._carry_on(url, call, read, came_to)))

    async def _carry_on(
        self, url: str, call: Call, read: Read[T], came_to: Response | BaseException | None = None
    ) -> T:
        """Make the attempts that are left; `came_to` is the result of the first, if that was
        made."""
        try:
            return await self._carry(url, call, read, came_to)
        except asyncio.CancelledError:
            self._abandon(call)
            raise
        except PeerError:
            self._failed += 1
            raise

    async def look(
        self, node: str, method: str, path: str, read: Read[T], *, wait_s: float = 0.0
    ) -> T:
        """Ask a node about a request, or another node that is known to be of its cluster; that may
        be done any number of times. Raises the errors of `read`, and OutcomeUnknown if none gives
        an answer for `comeback_s`."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._closed:
            self._begin(loop)
        tries, until_s = 0, math.inf
        at, asked = node, set[str]()
        while True:
            answer: Response | None = None
            retry_after_s = 0.0
            try:
                answer = await self._ask(at, method, path, wait_s)
                return read(at, answer)
            except (NotDelivered, OutcomeUnknown) as error:
                if answer is not None and answer.status < 500 and answer.status not in (408, 429):
                    raise
                if self._closed:
                    raise
                if isinstance(error, Refused):
                    retry_after_s = error.retry_after_s or 0.0
                why = str(error)
            asked.add(at)
            await self._clusters.find_others(node)
            cluster = self.nodes.cluster_of(node)
            other = self.nodes.choose_of(cluster, time.monotonic(), asked)
            if other is not None:
                at = other
                continue
            asked.clear()
            at = node
            pause_s = retry_after_s + backoff_s(tries, 0.1, 2.0, self._rng.random())
            if tries == 0:
                until_s = time.monotonic() + self._retries.comeback_s
            tries += 1
            if time.monotonic() + pause_s >= until_s:
                said = f"node {node} cannot be asked: {why}. The job may have run, or may yet"
                raise wire.named(OutcomeUnknown(said), node, None)
            await asyncio.sleep(pause_s)

    def call_off(self, node: str, name: str, exchange: OutgoingRequest | None = None) -> None:
        """Have a request cancelled at its node, without waiting for it."""
        self._called_off += 1
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[object] = loop.create_future()
        if exchange is None:
            answered.set_result(None)
        else:
            exchange.on_end = partial(_settle, answered)
        task = loop.create_task(self._cancel_there(node, name, exchange, answered))
        self._partings.add(task)
        task.add_done_callback(self._partings.discard)

    @property
    def is_of_parent(self) -> bool:
        """Returns whether this process was forked from the one in which the first call was made."""
        return self._process not in (None, os.getpid())

    def close_copies(self) -> None:
        """Close the copies of the connections in a forked process."""
        self._closed = True
        for client in self._clients.values():
            client.close_copies()
        for blocking in self._blocking.values():
            blocking.close_copies()

    async def close(self) -> None:
        """End requests under way, and close all connections."""
        self._closed = True
        for call in list(self._under_way):
            exchange = call.exchange
            self._abandon(call)
            call.settle(call.closed_under())
            if call.future is None and exchange is not None:
                self._blocking[call.url].interrupt(exchange)
        if self._partings:
            await asyncio.wait(self._partings, timeout=PARTING_S)
        for client in self._clients.values():
            await client.close()
        for blocking in self._blocking.values():
            blocking.close()

    async def _begin_once(self) -> None:
        if self._loop is None:
            self._begin(asyncio.get_running_loop())

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._closed:
            raise RuntimeError("this client is closed")
        if self._loop is not None:
            raise RuntimeError(
                "this client belongs to another event loop; make one for each loop, or use"
                " Spillover, which has a loop of its own"
            )
        self._loop, self._process = loop, os.getpid()
        self._slots = Slots(self._connections_max, loop)
        self._budget = RetryBudget(self._retries, time.monotonic())
        self.on_begin()

    def _client(self, url: str) -> HttpClient:
        client = self._clients.get(url)
        if client is None:
            client = self._clients[url] = HttpClient(
                url,
                headers=self._headers,
                connect_timeout_s=CONNECT_S,
                idle_s_max=IDLE_S_MAX,
                body_limit_bytes=ANSWER_LIMIT_BYTES,
                user_timeout_s=USER_TIMEOUT_S,
                tls=self._trust.of(url),
            )
        return client

    def _attempts(self, call: Call) -> RequestAttempts:
        return RequestAttempts(
            self.nodes,
            self._budget,
            self._retries,
            self._rng,
            until_s=call.until_s,
            repeatable=call.repeatable,
        )

    async def _carry(
        self, url: str, call: Call, read: Read[T], came_to: Response | BaseException | None
    ) -> T:
        attempts: RequestAttempts | None = None
        while True:
            if came_to is None:
                came_to = await self._send(url, call)
            try:
                if isinstance(came_to, Response):
                    self._clusters.note(url, came_to)
                    result = read(url, came_to)
                    self.nodes.succeeded(url)
                    self._answered += 1
                    return result
                error = self._without_answer(url, call, came_to)
            except PeerError as said:
                error = said
            attempts = attempts or self._attempts(call)
            home = attempts.home or (url if isinstance(error, OutcomeUnknown) else None)
            if home is not None and call.repeatable:
                await self._clusters.find_others(home)
                self._check_open(call)
            answered = isinstance(came_to, Response)
            attempts.failed(url, error, time.monotonic(), answered=answered)
            call.may_have_run = attempts.home is not None
            url = await self._next(attempts, call)
            self._retried += 1
            came_to = None

    async def _send(self, url: str, call: Call) -> Response | BaseException:
        """Returns the result of one attempt. Raises Expired if there was no time for it."""
        slots = self._slots
        assert slots is not None  # noqa: S101 - it is in the loop
        if not slots.take():
            await self._slot(slots, call)
        try:
            left_s = call.until_s - time.monotonic()
            assert self._loop is not None  # noqa: S101 - it is in there
            future: asyncio.Future[Response | BaseException] = self._loop.create_future()
            call.begin(url, future)
            call.exchange = self._client(url).send(
                "POST",
                wire.PATH,
                call.settle,
                headers=(*call.headers, wire.deadline_header(left_s)),
                body=call.body,
                timeout_s=left_s + GRACE_S,
            )
            self._under_way.add(call)
            return await future
        finally:
            self._under_way.discard(call)
            slots.give_back()

    def _send_here(self, url: str, call: Call) -> Response | BaseException:
        """Returns the result of one attempt, made in this thread."""
        client = self._blocking.get(url)
        if client is None:
            made = BlockingClient(
                url,
                self._headers,
                connect_timeout_s=CONNECT_S,
                idle_s_max=IDLE_S_MAX,
                body_limit_bytes=ANSWER_LIMIT_BYTES,
                user_timeout_s=USER_TIMEOUT_S,
            )
            # Another thread may have been faster: who is not kept here is never closed.
            client = self._blocking.setdefault(url, made)
        left_s = call.until_s - time.monotonic()
        call.begin(url, None)
        exchange = call.exchange = client.begin("POST", wire.PATH, call.settle)
        self._under_way.add(call)
        headers = (*call.headers, wire.deadline_header(left_s))
        client.carry(exchange, wire.PATH, headers, call.body, left_s + GRACE_S)
        return call.came_to or call.closed_under()

    async def _slot(self, slots: Slots, call: Call) -> None:
        """Wait until less than `connections_max` requests are under way. Raises Expired."""
        try:
            async with asyncio.timeout(call.until_s - time.monotonic()):
                await slots.wait()
        except TimeoutError:
            message = (
                f"the deadline passed in this client, where {self._connections_max} requests were"
                " under way all the time (connections_max)"
            )
            raise Expired(message, surely_did_not_run=not call.may_have_run) from None

    async def _next(self, attempts: RequestAttempts, call: Call) -> str:
        """Wait until another attempt may be made, and return its node. Raises the error that ends
        the request."""
        while not isinstance(step := attempts.choose(time.monotonic()), str):
            await asyncio.sleep(step)
            self._check_open(call)
        return step

    def _check_open(self, call: Call) -> None:
        if self._closed:
            raise wire.named(Cancelled("the client was closed"), call.url, call.name)

    def _abandon(self, call: Call) -> None:
        """Let go of a request that nobody waits for any more. It goes on under a name of its
        user's; one without any name ends with its connection."""
        exchange = call.exchange
        under_way = exchange is not None and exchange.connection is not None
        if call.ours and (under_way or call.may_have_run or may_go_on(call.came_to)):
            self.call_off(call.url, call.name, exchange if under_way else None)
        elif exchange is not None:
            exchange.cancel()
        call.exchange = call.came_to = None
        call.may_have_run = False

    async def _cancel_there(
        self,
        node: str,
        name: str,
        exchange: OutgoingRequest | None,
        answered: asyncio.Future[object],
    ) -> None:
        """Cancel it again and again until it has ended: a cancel may come to the node before the
        request does, and another cluster may take its time. One cancel may fail, such as on a
        connection that breaks; the second goes to another node of the cluster, if one is known."""
        pause_s, may_fail = FIRST_PARTING_WAIT_S, True
        try:
            with suppress(PeerError, TimeoutError):
                async with asyncio.timeout(PARTING_S):
                    while True:
                        try:
                            if await self._is_cancelled(node, name, is_there=answered.done()):
                                break
                        except PeerError:
                            if not may_fail:
                                raise
                            may_fail = False
                            cluster = self.nodes.cluster_of(node)
                            node = self.nodes.choose_of(cluster, time.monotonic(), {node}) or node
                        await asyncio.wait([answered], timeout=pause_s)
                        pause_s *= 2.0
        finally:
            if exchange is not None:
                exchange.cancel()

    async def _is_cancelled(self, node: str, name: str, *, is_there: bool) -> bool:
        """Send a cancel, and return whether the request has ended. A request that is there is known
        at its node, unless that has forgotten it."""
        path = wire.job_path(name)
        answer = await self._client(node).request("DELETE", path, timeout_s=PARTING_S)
        return answer.status == 200 or (is_there and answer.status != 202)

    async def _ask(self, node: str, method: str, path: str, wait_s: float) -> Response:
        assert self._slots is not None  # noqa: S101 - it is in the loop
        async with self._slots:
            try:
                answer = await self._client(node).request(method, path, timeout_s=wait_s + ASK_S)
            except (NotDelivered, OutcomeUnknown) as error:
                raise wire.without_answer(node, None, error) from None
        self._clusters.note(node, answer)
        return answer

    def _without_answer(self, url: str, call: Call, came_to: BaseException) -> PeerError:
        if not isinstance(came_to, (NotDelivered, OutcomeUnknown)):
            raise came_to  # closed, or a bug
        name = call.name or None
        if isinstance(came_to, OutcomeUnknown) and time.monotonic() >= call.until_s:
            message = f"the deadline passed without an answer from node {url}. It may have run"
            return wire.named(Expired(message), url, name)
        return wire.without_answer(url, name, came_to)


def _settle(future: asyncio.Future[object], came_to: Response | BaseException) -> None:
    """Take the result of an exchange, as its `on_end`."""
    if not future.done():
        future.set_result(came_to)
