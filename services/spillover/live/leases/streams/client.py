"""Carries steps out: `Client` in the thread that calls, `AsyncClient` on the running event loop.

Both have a few connections of their own, read bytes, and never try again by themselves. What is
asked, and what to do about errors, is in the steps.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from spillover.live.leases.streams.steps import Begin, Call, Pause, Run, Steps, Stop, Take, Wait
from spillover.live.redis.connection import ASYNC, THREADS, close_quietly, failed, open_client
from spillover.live.redis.rotation import RedisAddress, RedisUrl

if TYPE_CHECKING:
    from redis import Redis
    from redis.asyncio import Redis as AsyncRedis

T = TypeVar("T")

CONNECTIONS_MAX = 2
"""One reads ahead while the other commits."""

TURN_S = 0.002
"""After so long others on the loop have their turn."""

STOP_POLL_S = 0.05
"""How often a coroutine looks at an event that it cannot wait for."""


class Client:
    """Synchronous. What is begun runs in one thread beside the caller's."""

    def __init__(self, url: RedisUrl, timeout_s: float, stop: Stop | None = None) -> None:
        """`timeout_s`: for connecting and for each answer. Raises InputError."""
        address = RedisAddress.of(url)
        self._redis: Redis = open_client(
            address, timeout_s, CONNECTIONS_MAX, THREADS, as_text=False
        )
        self._place = address.place
        self._timeout_s = timeout_s
        self._stop = stop if isinstance(stop, threading.Event) else threading.Event()
        self._beside: ThreadPoolExecutor | None = None

    def carry_out(self, steps: Steps[T]) -> T:
        """Carries out the steps, and returns their answer; raises what they raise."""
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                ask = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as ended:
                found: T = ended.value
                return found
            answer = error = None
            try:
                answer = self._do(ask)
            except Exception as raised:  # noqa: BLE001 - the steps know what to do about it
                error = raised

    def close(self) -> None:
        """Waits for nobody: what was begun disconnects by itself when it is done."""
        self._disconnect()
        if self._beside is not None:
            self._beside.submit(self._disconnect)
            self._beside.shutdown(wait=False)
            self._beside = None

    def _disconnect(self) -> None:
        self._redis.close()
        self._redis.connection_pool.disconnect()

    def _do(self, ask: Any) -> Any:
        match ask:
            case Run():
                return self._run(ask)
            case Call():
                return ask.function(*ask.arguments)
            case Wait():
                return self._told("XREAD", *_xread(ask, self._timeout_s))
            case Pause():
                return self._stop.wait(ask.for_s)
            case Begin():
                if self._beside is None:
                    self._beside = ThreadPoolExecutor(1, "spillover-stream")
                return self._beside.submit(self.carry_out, ask.steps)
            case Take():
                return ask.ticket.result()

    def _run(self, ask: Run) -> Any:
        from redis.exceptions import NoScriptError  # noqa: PLC0415

        given = (len(ask.keys), *ask.keys, *ask.arguments)
        try:
            return self._told("EVALSHA", ask.script.digest, *given)
        except NoScriptError:
            return self._told("EVAL", ask.script.text, *given)

    def _told(self, *command: str | bytes | float) -> Any:
        from redis.exceptions import NoScriptError, RedisError  # noqa: PLC0415

        try:
            return self._redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:
            raise failed(error, self._redis, self._place) from None


class AsyncClient:
    """A client on the event loop that runs when it is first used. What is begun is a task there."""

    def __init__(self, url: RedisUrl, timeout_s: float, stop: Stop | None = None) -> None:
        """`timeout_s`: for connecting and for each answer. Raises InputError."""
        address = RedisAddress.of(url)
        self._redis: AsyncRedis = open_client(
            address, timeout_s, CONNECTIONS_MAX, ASYNC, as_text=False
        )
        self._place = address.place
        self._timeout_s = timeout_s
        self._stop = stop
        self._tasks: set[asyncio.Task[Any]] = set()

    async def carry_out(self, steps: Steps[T]) -> T:
        """Carries out the steps, and returns their answer; raises what they raise."""
        answer: Any = None
        error: Exception | None = None
        since_s = monotonic()
        while True:
            try:
                ask = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as ended:
                found: T = ended.value
                return found
            answer = error = None
            if monotonic() - since_s > TURN_S:  # plain handlers never wait for anything
                await asyncio.sleep(0)
                since_s = monotonic()
            try:
                answer = await self._do(ask)
            except Exception as raised:  # noqa: BLE001 - the steps know what to do about it
                error = raised

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await close_quietly(self._redis.aclose, self._redis.connection_pool.disconnect)

    async def _do(self, ask: Any) -> Any:
        match ask:
            case Run():
                return await self._run(ask)
            case Call():
                answer = ask.function(*ask.arguments)
                return await answer if inspect.isawaitable(answer) else answer
            case Wait():
                return await self._unless_stopped(
                    self._told("XREAD", *_xread(ask, self._timeout_s))
                )
            case Pause():
                return await self._unless_stopped(_sleep(ask.for_s))
            case Begin():
                task = asyncio.get_running_loop().create_task(self.carry_out(ask.steps))
                self._tasks.add(task)
                task.add_done_callback(self._forget)
                return task
            case Take():
                return await ask.ticket

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: whoever takes it gets it again

    async def _unless_stopped(self, waiting: Awaitable[Any]) -> Any:
        if self._stop is None:
            return await waiting
        task = asyncio.ensure_future(waiting)
        stopped = asyncio.ensure_future(_stopped(self._stop))
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for one in (task, stopped):
                one.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    async def _run(self, ask: Run) -> Any:
        from redis.exceptions import NoScriptError  # noqa: PLC0415

        given = (len(ask.keys), *ask.keys, *ask.arguments)
        try:
            return await self._told("EVALSHA", ask.script.digest, *given)
        except NoScriptError:
            return await self._told("EVAL", ask.script.text, *given)

    async def _told(self, *command: str | bytes | float) -> Any:
        from redis.exceptions import NoScriptError, RedisError  # noqa: PLC0415

        try:
            return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:
            raise failed(error, self._redis, self._place) from None


def _xread(ask: Wait, timeout_s: float) -> tuple[str | float, ...]:
    """One entry at most, and within the time limit of an answer. 0 would be for ever."""
    limit_ms = max(1, round(1000 * min(ask.limit_s, timeout_s / 2.0)))
    return "COUNT", 1, "BLOCK", limit_ms, "STREAMS", ask.stream, ask.id


async def _sleep(for_s: float) -> None:
    await asyncio.sleep(for_s)


async def _stopped(stop: Stop) -> None:
    wait: Any = getattr(stop, "wait_async", getattr(stop, "wait", None))
    if inspect.iscoroutinefunction(wait):
        await wait()
        return
    while not stop.is_set():  # noqa: ASYNC110 - a threading.Event wakes no coroutine
        await asyncio.sleep(STOP_POLL_S)
