"""The workers of one Dask cluster and the requests there, on a thread and a loop of their own: what
Dask does there never holds up the node's loop.

Each request is sent to one worker that has a free slot, and waits here, not there, while none has.
So it is always known what surely was not begun, and nothing runs twice because a worker died. A
worker is used once it has been greeted: it has the same Python and can import the function. What
requests mean to the node is in `handler`, what runs on the workers in `call`, how the scheduler is
reached in `connection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import TimeoutError as ThreadTimeoutError
from typing import Any

from spillover.live.handlers.calls import RESULT_LIMIT_BYTES, one_line
from spillover.live.handlers.dask import call as dask_call
from spillover.live.handlers.dask.connection import CLOSE_S, CONNECT_S, DaskConnection
from spillover.live.handlers.dask.pool import (
    DaskRequest,
    Listener,
    PoolWorker,
    Shipped,
    UsableWorkers,
    greet,
)
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.dask_target import DaskTarget

OPEN_S = 30.0
"""The time for the first connection, and for the workers to import the function."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class DaskSession:
    """Opened and closed by the node; `submit` and `stop` may be called from its loop."""

    def __init__(
        self, target: DaskTarget, servers: int, loop: asyncio.AbstractEventLoop, listener: Listener
    ) -> None:
        self._target = target
        self._servers = servers
        self._node_loop = loop
        self._listener = listener
        self._name = uuid.uuid4().hex[:12]
        self._names = (target.module, target.function)
        self._run = Shipped(dask_call.run)
        self._stop_there = Shipped(dask_call.stop)
        self._pool = UsableWorkers()
        self._slots: dict[str, int] = {}
        """Of each worker, at the last look."""
        self._greeting: dict[str, asyncio.Task[None]] = {}
        self._unfit: dict[str, str] = {}
        self._waiting: deque[DaskRequest] = deque()
        self._requests: dict[int, DaskRequest] = {}
        self._is_up = True
        self._told_slots = -1
        self._sent = 0

    # --- what the node calls ------------------------------------------------------------------

    def open(self) -> None:
        """Connect, in a thread that is started here. Raises ConnectionError if nothing that is a
        scheduler answers, LookupError if there are workers and none can run the function."""
        self._opened: ThreadFuture[None] = ThreadFuture()
        name = f"dask {self._target.address}"
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main()), name=name, daemon=True
        )
        self._thread.start()
        try:
            self._opened.result(OPEN_S + CONNECT_S)
        except ThreadTimeoutError as error:
            raise ConnectionError(f"no answer within {OPEN_S + CONNECT_S:.0f} s") from error

    def submit(self, request: DaskRequest) -> None:
        self._there(self._take, request)

    def stop(self, ref: int) -> None:
        self._there(self._stop, ref)

    async def close(self) -> None:
        """Let go of all; what runs there is told so by the scheduler."""
        self._there(self._closing.set)
        await asyncio.to_thread(self._thread.join, CLOSE_S + 1.0)

    def _there(self, function: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: so is the session
            self._loop.call_soon_threadsafe(function, *args)

    def _tell(self, function: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the node has ended
            self._node_loop.call_soon_threadsafe(function, *args)

    # --- the thread ---------------------------------------------------------------------------

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        self._connection = DaskConnection(self._target.address, self._hear)
        try:
            await self._begin()
        except Exception as error:  # noqa: BLE001 - what answers may be anything
            await self._disconnect()
            unfit = isinstance(error, LookupError)
            self._opened.set_exception(error if unfit else ConnectionError(one_line(error)))
            return
        self._opened.set_result(None)
        self._changed()
        closing = asyncio.create_task(self._closing.wait())
        serving = asyncio.create_task(self._serve())
        await asyncio.wait([closing, serving], return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        await self._disconnect()

    async def _begin(self) -> None:
        """Raises LookupError for workers that are all unfit, and whatever Dask does."""
        await self._connection.open()
        self._compare(await self._connection.count_slots())
        if self._greeting:
            await asyncio.wait(self._greeting.values(), timeout=OPEN_S)
        if self._unfit and not self._pool.slots and not self._greeting:
            raise LookupError(next(iter(self._unfit.values())))

    async def _serve(self) -> None:
        """Watch the scheduler for ever, and look for it again when it is lost."""
        address = self._target.address
        while True:
            reason = await self._connection.watch(self._compare)
            _log.warning(Message("Dask scheduler lost", upstream=address, reason=reason))
            self._lose_all(f"the Dask scheduler at {address} was lost: {reason}")
            await self._disconnect()
            await self._connection.open_again()

    async def _disconnect(self) -> None:
        for task in [*self._greeting.values()]:
            task.cancel()
        self._greeting.clear()
        self._unfit.clear()
        await self._connection.close()

    # --- workers ------------------------------------------------------------------------------

    def _compare(self, counts: dict[str, int]) -> None:
        """Greet workers that are new, and let go of those that are gone."""
        for address in self._pool.addresses - counts.keys():
            self._lose(address)
        for address in self._unfit.keys() - counts.keys():
            del self._unfit[address]
        for address, slots in counts.items():
            known = self._pool.addresses | self._greeting.keys() | self._unfit.keys()
            if address not in known and slots > 0:
                self._greeting[address] = asyncio.create_task(self._greet(address))
            # A look may have found the slots of the one that was there before.
            self._pool.resize(address, slots)
        self._slots = counts
        self._changed()

    def _hear(self, event: tuple[float, Any]) -> None:
        """Take the scheduler's news at once. Between two looks another process may come to a
        worker's address: then it is not known whether the first one got a call that was sent
        there."""
        told: Any = event[1] if isinstance(event[1], dict) else {}  # anybody may tell anything
        if told.get("action") == "remove-worker":
            address = str(told.get("worker"))
            if greeting := self._greeting.pop(address, None):
                greeting.cancel()
            self._unfit.pop(address, None)
            self._lose(address)
            self._changed()
        if told.get("action") in ("add-worker", "remove-worker"):
            self._connection.look_now()

    async def _greet(self, address: str) -> None:
        try:
            token, problem = await greet(self._connection.client, address, self._names)
        except Exception as error:  # noqa: BLE001 - it may be gone: the next look tells
            reason = one_line(error)
            _log.info(Message("Dask worker cannot be greeted", worker=address, reason=reason))
            self._greeting.pop(address, None)
            return
        self._greeting.pop(address, None)
        if problem:
            self._unfit[address] = f"Dask worker {address} {problem}"
            _log.error(Message("Dask worker is not used", worker=address, reason=f"it {problem}"))
        else:
            self._pool.add(PoolWorker(address, self._slots.get(address, 0), token))
        self._changed()

    def _lose(self, address: str) -> None:
        worker = self._pool.remove(address)
        if worker is None:
            return
        _log.warning(Message("Dask worker lost", worker=address))
        self._unknown(
            [request for request in self._requests.values() if request.worker is worker],
            f"the Dask worker {address} was lost",
        )

    def _lose_all(self, problem: str) -> None:
        self._pool = UsableWorkers()
        self._unknown([r for r in self._requests.values() if r.worker is not None], problem)
        self._changed(problem)

    def _unknown(self, requests: Iterable[DaskRequest], problem: str) -> None:
        """They were there, and whether they ran is not known: once more only with a key."""
        for request in list(requests):
            self._leave(request)
            if request.keyed and not request.tried and not request.stopped:
                request.tried = True
                self._waiting.appendleft(request)
            else:
                text = f"{problem}; whether it did the work is not known"
                self._end(request, dask_call.FAILED, text)

    def _changed(self, problem: str = "") -> None:
        """Tell how many slots there are, and use those that are free. While there are none, what
        waits is the node's again."""
        if not self._opened.done():
            return
        slots = self._pool.slots
        if (slots > 0) is not self._is_up:
            self._is_up = slots > 0
            self._tell(lambda is_up: self._listener.slots_changed(is_up=is_up), self._is_up)
        if self._connection.client is not None and slots != self._told_slots:
            self._told_slots = slots
            self._pool.tell(self._target.address, self._servers)
        if slots == 0:
            problem = problem or f"the Dask cluster at {self._target.address} has no workers"
            while self._waiting:
                request = self._waiting.popleft()
                self._requests.pop(request.ref, None)
                self._tell(self._listener.not_begun, request.ref, problem)
        while self._waiting and (worker := self._pool.free()) is not None:
            self._send(self._waiting.popleft(), worker)

    # --- requests -----------------------------------------------------------------------------

    def _take(self, request: DaskRequest) -> None:
        self._requests[request.ref] = request
        self._waiting.append(request)
        self._changed()

    def _send(self, request: DaskRequest, worker: PoolWorker) -> None:
        self._sent += 1
        request.key = f"spillover-{self._name}-{self._sent}"
        request.worker = worker
        worker.running += 1
        facts = {**request.facts, "remaining_ms": (request.deadline_s - time.monotonic()) * 1e3}
        given = (worker.token, request.key, self._names, request.payload, facts, RESULT_LIMIT_BYTES)
        # Nowhere else, should the worker die: then nobody knows whether it has run.
        future = self._connection.client.submit(
            self._run, *given, key=request.key, workers=[worker.address], pure=False
        )
        task = asyncio.create_task(self._follow(request, future))
        request.tasks.append(task)

    async def _follow(self, request: DaskRequest, future: Any) -> None:
        try:
            kind, value, details = await future
        except Exception as error:  # noqa: BLE001 - lost, or its result cannot be had
            if not self._connection.is_up:
                self._connection.look_now()
                return  # all of them are told, once it is known that the scheduler is lost
            kind, value, details = dask_call.FAILED, f"Dask gave no result: {one_line(error)}", ""
        worker = request.worker
        if kind == dask_call.NOT_BEGUN and not request.stopped and worker is not None:
            # Another process is at this address. Whether the one before it had begun is not known.
            self._lose(worker.address)
            self._connection.look_now()
        else:
            self._leave(request)
            self._end(request, kind, value, details)
        self._changed()

    def _stop(self, ref: int) -> None:
        request = self._requests.get(ref)
        if request is None or request.stopped:
            return
        request.stopped = True
        if request.worker is None:
            self._waiting.remove(request)
            self._end(request, dask_call.NOT_BEGUN, "")
        else:
            request.tasks.append(asyncio.create_task(self._stop_begun(request, request.worker)))

    async def _stop_begun(self, request: DaskRequest, worker: PoolWorker) -> None:
        """Tell the function; it is over when it has returned. If it was not begun, drop it."""
        client = self._connection.client
        try:
            answers = await client.run(self._stop_there, request.key, workers=[worker.address])
            if answers[worker.address]:
                return
            await client.cancel([request.key], force=True)
        except Exception:  # noqa: BLE001 - the worker is gone, or the scheduler: looks tell
            self._connection.look_now()
            return
        self._leave(request)
        self._end(request, dask_call.NOT_BEGUN, "")
        self._changed()

    def _leave(self, request: DaskRequest) -> None:
        """It is no more at its worker."""
        if request.worker is not None:
            request.worker.running -= 1
            request.worker = None
        current = asyncio.current_task()
        for task in request.tasks:
            if task is not current:
                task.cancel()
        request.tasks.clear()

    def _end(self, request: DaskRequest, kind: str, value: Any, details: str = "") -> None:
        self._requests.pop(request.ref, None)
        self._tell(self._listener.ended, request.ref, kind, value, details)
