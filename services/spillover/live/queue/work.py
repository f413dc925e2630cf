"""Feeds a handler, of those that nodes have, with the objects of a queue: what was done is
acknowledged, what was not returns.

How objects come is in `consuming`, how work is done in `spillover.live.handlers`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from contextlib import suppress
from random import SystemRandom
from typing import Any

import msgspec

from spillover.core.overflow.events import NotStarted, ServiceEnded, Start
from spillover.live.engine.timers import Timers
from spillover.live.handlers.make import be_ready, make_workers
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.queue.consumer_shell import CLOSE_S
from spillover.live.queue.consuming import AsyncQueueObject, Consumer
from spillover.model.errors import UNREADABLE, SpilloverError
from spillover.model.ids import RequestId
from spillover.model.request import Outcome, Request
from spillover.model.topology import Cluster
from spillover.policy.backoff import backoff_s

AGAIN_S, AGAIN_S_MAX = 0.2, 10.0
"""The shortest and the longest pause before work that surely was not begun is tried again: the
object stays here meanwhile."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())
_check = msgspec.json.Decoder(msgspec.Raw).decode


class NotDone(SpilloverError):
    """The object was not handled, in one line: it returns to its producer."""


class QueueWork:
    """The handler of `pool`, on as many objects at once as that has servers. `source` is what
    errors call the place where the handler is named. Must be made in a running loop."""

    def __init__(self, consumer: Consumer, pool: Cluster, source: str, deadline_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._consumer = consumer
        self._timers = Timers(loop)
        self._workers = make_workers(
            pool, source, self._timers, self._on_end, on_health=lambda _: None
        )
        self._pool, self._source = pool, source
        self._deadline_s = deadline_s
        self._random = SystemRandom()
        self._hands = asyncio.Semaphore(pool.server_count)
        self._refs = 0
        self._running: dict[int, asyncio.Future[ServiceEnded | NotStarted]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self.done = 0
        self.given_back = 0

    async def run(self) -> None:
        """Work until `stop`, and return when all that was begun has ended. Raises InputError where
        a worker process cannot import the handler."""
        await be_ready(self._workers, self._pool, self._source)
        async with self._consumer:
            objects = aiter(self._consumer)
            while True:
                await self._hands.acquire()
                obj = await anext(objects, None)
                if obj is None:
                    break
                task = asyncio.get_running_loop().create_task(self._handle(obj))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if self._tasks:
                await asyncio.wait(self._tasks)

    def stop(self) -> None:
        """Take no object any more. What has not begun returns."""
        self._stopping.set()
        self._consumer.stop()

    async def close(self) -> None:
        """Give back what is still under way, and let go of everything."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            for task in left:  # their producers do not hear of it
                task.cancel()
            if left:
                await asyncio.wait(left)
        await self._workers.close()
        self._timers.close()

    async def _handle(self, obj: AsyncQueueObject) -> None:
        done = False
        try:
            async with obj:
                await self._do(obj)
                done = True
            self.done += not obj.lost  # its log says so
        except NotDone as error:
            self.given_back += 1
            _log.warning(Message("an object was not handled", object=obj.id, problem=str(error)))
        except asyncio.CancelledError:  # perhaps only its acknowledgement was awaited
            self.done += done
            self.given_back += not done
            raise
        finally:
            self._hands.release()

    async def _do(self, obj: AsyncQueueObject) -> None:
        """Raises NotDone."""
        work = payload_of(obj)
        problem = self._workers.problem_with(work)
        if problem is not None:
            raise NotDone(problem)
        attempt = 0
        while True:
            ended = await self._run(obj, work)
            if isinstance(ended, ServiceEnded):
                if ended.outcome is Outcome.DONE:
                    return
                raise NotDone(ended.problem or "the handler was stopped")
            draw = self._random.random()
            pause_s = ended.retry_after_s or backoff_s(attempt, AGAIN_S, AGAIN_S_MAX, draw)
            attempt += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            if self._stopping.is_set() or obj.lost:
                raise NotDone(ended.problem)

    async def _run(self, obj: AsyncQueueObject, work: msgspec.Raw) -> ServiceEnded | NotStarted:
        """How one attempt ended. It is stopped when its time is over, or its grant."""
        loop = asyncio.get_running_loop()
        self._refs += 1
        ref = self._refs
        ended: asyncio.Future[ServiceEnded | NotStarted] = loop.create_future()
        self._running[ref] = ended
        now_s = self._timers.clock()
        # Not keyed: an object has no name that outlives its producer.
        request = Request(RequestId(obj.id), keyed=False, work=work)
        self._workers.start(Start(ref, request, now_s, now_s + self._deadline_s))
        lost = loop.create_task(obj.until_lost())
        try:
            over: list[asyncio.Future[Any]] = [ended, lost]
            await asyncio.wait(over, timeout=self._deadline_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            if not ended.done():
                self._workers.stop(ref)
        if not ended.done():
            await ended
            why = "its grant has ended" if obj.lost else f"not done in {self._deadline_s:g} s"
            return ServiceEnded(ref, Outcome.CANCELLED, 0.0, problem=why)
        return ended.result()

    def _on_end(self, event: ServiceEnded | NotStarted, _: float | None) -> None:
        ended = self._running.pop(event.ref, None)
        if ended is not None and not ended.done():
            ended.set_result(event)


def payload_of(obj: AsyncQueueObject) -> msgspec.Raw:
    """Returns what a handler is given: JSON as it came, other types wrapped as answers of other
    types are (docs/queue.md). Raises NotDone for what says that it is JSON, and is not."""
    kind = obj.content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        wrapped = {
            "content_type": obj.content_type,
            "body_base64": base64.b64encode(obj.body).decode("ascii"),
        }
        return msgspec.Raw(msgspec.json.encode(wrapped))
    try:
        obj.body.decode()  # the JSON decoder does not look at what it passes over
        _check(obj.body)
    except UNREADABLE as error:
        raise NotDone(f"expected JSON, as its type says: {error}") from None
    return msgspec.Raw(obj.body)
