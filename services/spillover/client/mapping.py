"""`map` of both clients runs many payloads at once, within bounds. `Window` says what may start and
what may be handed out; callers know how one payload is run."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sized,
)
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from spillover.client.wire import Answer
from spillover.model.arguments import checked_count, checked_flag, wrong
from spillover.model.errors import SpilloverError

P = TypeVar("P")

AHEAD = 8
"""The number of answers that may wait for an earlier one, for each request that may be under way,
where answers come in order."""

Outcome: TypeAlias = Answer | SpilloverError
Run: TypeAlias = Callable[[P], Coroutine[Any, Any, Answer]]


class Progress(NamedTuple):
    """The progress of a map."""

    started: int
    """The number of payloads taken so far."""
    done: int
    """How many of them came to an answer."""
    failed: int
    """The number of them that came to an answer."""
    total: int | None
    """The number of them that came to an error."""

    @property
    def under_way(self) -> int:
        return self.started - self.done - self.failed


OnProgress: TypeAlias = Callable[[Progress], object]


class Window:
    """The bounds of a map: at most `at_most` payloads are under way. In order, no more than AHEAD
    times as many wait for an earlier one, or until the caller takes the answers."""

    def __init__(self, at_most: int, total: int | None, *, ordered: bool) -> None:
        checked_count("at_most", at_most)
        checked_flag("ordered", ordered)
        self._at_most = at_most
        self._total = total
        self._ordered = ordered
        self._started = self._done = self._failed = self._handed = 0
        self._ended: dict[int, Outcome] = {}
        self._as_completed: deque[int] = deque()

    @property
    def progress(self) -> Progress:
        return Progress(self._started, self._done, self._failed, self._total)

    @property
    def under_way(self) -> int:
        return self._started - self._done - self._failed

    @property
    def has_room(self) -> bool:
        waiting_max = self._at_most * (AHEAD + 1)
        return self.under_way < self._at_most and self._started - self._handed < waiting_max

    def start(self) -> int:
        self._started += 1
        return self._started - 1

    def end(self, number: int, outcome: Outcome) -> None:
        self._ended[number] = outcome
        if not self._ordered:
            self._as_completed.append(number)
        if isinstance(outcome, Answer):
            self._done += 1
        else:
            self._failed += 1

    def take(self) -> Outcome | None:
        """Returns the next outcome to hand out, or None if it is not there yet."""
        if self._ordered:
            number = self._handed
        elif self._as_completed:
            number = self._as_completed.popleft()
        else:
            return None
        outcome = self._ended.pop(number, None)
        if outcome is not None:
            self._handed += 1
        return outcome


async def map_async(
    payloads: Iterable[P] | AsyncIterable[P],
    run: Run[P],
    window: Window,
    progress: OnProgress | None,
) -> AsyncGenerator[Outcome, None]:
    """Yield the outcome of each payload. A caller that leaves early cancels what is under way."""
    tasks: dict[int, asyncio.Task[Answer]] = {}
    news = asyncio.Event()
    source = _Source(payloads, news)
    broken: list[BaseException] = []

    def ended(number: int, task: asyncio.Task[Answer]) -> None:
        del tasks[number]
        _settle(window, number, task, broken)
        news.set()

    try:
        while True:
            news.clear()
            if window.has_room and (found := source.take()) is not None:
                number = window.start()
                task = tasks[number] = asyncio.create_task(run(found[0]))
                task.add_done_callback(partial(ended, number))
                news.set()
            if broken:
                raise broken[0]
            while (outcome := window.take()) is not None:
                if progress is not None:
                    progress(window.progress)
                yield outcome
                news.set()  # what was handed out made room
            if source.is_empty and not tasks:
                return
            await news.wait()
    finally:
        source.close()
        for task in tasks.values():
            task.cancel()
        if tasks:
            await asyncio.wait(tasks.values())


class _Source:
    """Payloads, awaited or not. `news` is set when one has come."""

    def __init__(self, payloads: Iterable[P] | AsyncIterable[P], news: asyncio.Event) -> None:
        self.is_empty = False
        self._news = news
        self._coming: asyncio.Future[Any] | None = None
        self._plain: Iterator[Any] | None = None
        self._awaited: AsyncIterator[Any] | None = None
        if isinstance(payloads, AsyncIterable):
            self._awaited = aiter(payloads)
        else:
            self._plain = iter(payloads)

    def take(self) -> tuple[Any] | None:
        """Returns the next payload, or None if there is none or none yet. Raises their errors."""
        if self._plain is not None:
            try:
                return (next(self._plain),)
            except StopIteration:
                self._plain, self.is_empty = None, True
        elif self._awaited is not None and self._coming is None:
            self._coming = asyncio.ensure_future(_next_of(self._awaited))
            self._coming.add_done_callback(lambda _: self._news.set())
        elif self._coming is not None and self._coming.done():
            coming, self._coming = self._coming, None
            found: tuple[Any] | None = coming.result()
            if found is None:
                self._awaited, self.is_empty = None, True
            return found
        return None

    def close(self) -> None:
        if self._coming is not None:
            self._coming.cancel()


async def _next_of(payloads: AsyncIterator[Any]) -> tuple[Any] | None:
    try:
        return (await anext(payloads),)
    except StopAsyncIteration:
        return None


def map_here(
    payloads: Iterable[P],
    begin: Callable[[P], concurrent.futures.Future[Answer]],
    window: Window,
    progress: OnProgress | None,
) -> Generator[Outcome, None, None]:
    """Do the same as `map_async` in a thread that does not await: it takes the payloads and hands
    out their outcomes."""
    futures: dict[int, concurrent.futures.Future[Answer]] = {}
    news: queue.SimpleQueue[int] = queue.SimpleQueue()
    broken: list[BaseException] = []
    source: Iterator[P] | None = iter(payloads)
    try:
        while source is not None or futures:
            if source is not None and window.has_room:
                try:
                    payload = next(source)
                except StopIteration:
                    source = None
                    continue
                number = window.start()
                future = futures[number] = begin(payload)
                future.add_done_callback(partial(_tell, news, number))
            else:
                number = news.get()
                _settle(window, number, futures.pop(number), broken)
            while not news.empty():
                number = news.get()
                _settle(window, number, futures.pop(number), broken)
            if broken:
                raise broken[0]
            while (outcome := window.take()) is not None:
                if progress is not None:
                    progress(window.progress)
                yield outcome
    finally:
        for future in futures.values():
            future.cancel()


def _tell(news: queue.SimpleQueue[int], number: int, _: object) -> None:
    news.put(number)


def _settle(
    window: Window,
    number: int,
    ended: asyncio.Task[Answer] | concurrent.futures.Future[Answer],
    broken: list[BaseException],
) -> None:
    """Note the outcome of one payload; an error that is none of ours ends the whole map."""
    if ended.cancelled():
        broken.append(asyncio.CancelledError())
        return
    error = ended.exception()
    if error is None:
        window.end(number, ended.result())
    elif isinstance(error, SpilloverError):
        window.end(number, error)
    else:
        broken.append(error)


def checked_payloads(payloads: object, *, awaited: bool) -> None:
    """Returns the payloads. Raises InputError at once for an object that holds none; `awaited` ones
    may be asynchronous."""
    kinds = (Iterable, AsyncIterable) if awaited else (Iterable,)
    if not isinstance(payloads, kinds):
        raise wrong("payloads", "payloads to go through", payloads)


def length_of(payloads: object) -> int | None:
    """Returns how many payloads there are, or None where they do not know."""
    return len(payloads) if isinstance(payloads, Sized) else None
