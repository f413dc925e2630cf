"""Consumers of a queue as users see them: `async for` and `for` over the same `consume(...)`.

How objects are got and kept is in `consumer_shell`; here is what people type.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Self, TypeAlias

from spillover.core.queue.consumer import ConsumerSettings
from spillover.live.engine.loop_thread import LoopThread
from spillover.live.http1.bearer import bearer_headers
from spillover.live.http1.trust import Trust
from spillover.live.queue.client_wire import DEADLINE_S_MAX, Headers
from spillover.live.queue.consumer_shell import ConsumerShell
from spillover.live.queue.directory import checked_urls, find_producers
from spillover.live.queue.held import HeldObject
from spillover.live.queue.shared_iterator import SharedIterator
from spillover.live.queue.wire import PRODUCERS_MAX
from spillover.model.arguments import (
    checked_count,
    checked_flag,
    checked_seconds,
    is_number,
    wrong,
)
from spillover.model.errors import InputError
from spillover.model.request import NAME_LENGTH_MAX, is_name

Access: TypeAlias = Mapping[str, float] | Literal["uniform", "learned"]

ACCESS_ERROR_MAX = 1e-6
"""Probabilities may miss 1 by so much, as producers have it."""


DELAY_S_MAX = 86_400.0


class _Object:
    """The common part of objects, however they are settled."""

    def __init__(self, held: HeldObject) -> None:
        received = held.received
        self.body = received.body
        self.content_type = received.content_type
        self.id = received.id
        """The object's name, such as p1-17: the producer that has it, and its number there; between
        them the producer's life where objects end with that."""
        self.grant = received.grant
        self.producer = received.producer
        self.deliveries = received.deliveries
        """The number of times that it has been given to anybody, this time included."""
        self.probes = received.probes
        """The number of producers that were asked for it."""
        self._held = held

    def __repr__(self) -> str:
        size = f"{len(self.body)} bytes of {self.content_type}"
        return f"<object {self.id}, {size}{', lost' if self.lost else ''}>"

    @property
    def lost(self) -> bool:
        """Returns whether somebody else may be given it: its grant has ended while it was handled,
        or its producer has not answered to its acknowledgement."""
        return self._held.lost.is_set()


class AsyncQueueObject(_Object):
    """One object. `async with` acknowledges it at the end, and gives it back on an exception. Until
    then its grant is extended by itself. Where the acknowledgement at the end comes too late, or is
    not answered, nothing is raised: `lost` is true from then on, and the log has a line."""

    async def ack(self) -> None:
        """Acknowledge that it has been handled. Raises GrantLost if its grant had ended before,
        OutcomeUnknown if its producer does not answer in time: it may have heard, or hear yet."""
        await self._held.acknowledge()

    async def nack(self, delay_s: float | None = None) -> None:
        """Give it back as not handled: it returns to the front of its buffer after `delay_s` (None:
        its producer's own), and at the end of its grant where its producer does not answer. Raises
        InputError for values that are no time up to a day."""
        await self._held.give_back(_checked_delay(delay_s))

    async def until_lost(self) -> None:
        """Return once it is `lost`."""
        await self._held.lost.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._held.end(well=kind is None, failed=_is_failure(kind))


class QueueObject(_Object):
    """An AsyncQueueObject for code that never awaits."""

    def __init__(self, held: HeldObject, thread: LoopThread) -> None:
        super().__init__(held)
        self._thread = thread

    def ack(self) -> None:
        """Do the same as `AsyncQueueObject.ack`."""
        self._thread.run(self._held.acknowledge())

    def nack(self, delay_s: float | None = None) -> None:
        """Do the same as `AsyncQueueObject.nack`."""
        self._thread.run(self._held.give_back(_checked_delay(delay_s)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._held.is_settled:
            ending = self._held.end(well=kind is None, failed=_is_failure(kind))
            self._thread.run(ending)


class Consumer:
    """Objects of a queue, as they come: `async for` them, or `for`.

    It begins with the loop, or with `async with` (`with`) around it, and ends with the same; then
    what it holds is given back. Threads may share it, each with a loop of its own or all with one
    iterator, and so may tasks, each with a loop: it ends with the last of them. `stop` ends the
    loops once what was given out is settled.
    """

    def __init__(
        self, urls: tuple[str, ...], settings: ConsumerSettings, trust: Trust, headers: Headers = ()
    ) -> None:
        self._urls = urls
        self._trust = trust
        self._headers = headers
        self._settings = settings
        self._shell: ConsumerShell | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: LoopThread | None = None
        self._lock = threading.RLock()
        """This is held while loops of threads begin and end."""
        self._opening = asyncio.Lock()
        """This is held while loops of tasks begin and end."""
        self._loops = 0
        self._ends_with_loops = False
        """True where it has begun with a loop."""
        self._stopped = False

    def stop(self) -> None:
        """Take no more objects; the loop ends when those given out are settled. This may be called
        from any thread, and from a signal handler."""
        self._stopped = True
        if self._loop is not None and self._shell is not None:
            self._loop.call_soon_threadsafe(self._shell.stop)

    @property
    def access(self) -> Mapping[str, float]:
        """Returns with which probability each producer is asked now; nothing before the start."""
        return {} if self._shell is None else dict(self._shell.machine.access)

    # --- for code that awaits -----------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    def __aiter__(self) -> AsyncIterator[AsyncQueueObject]:
        return self._objects()

    async def _objects(self) -> AsyncGenerator[AsyncQueueObject, None]:
        """A generator, since leaving a loop over it runs its end."""
        async with self._opening:
            if self._shell is None:
                await self._open()
                self._ends_with_loops = True
            assert self._shell is not None  # noqa: S101 - it was just opened
            shell, self._loops = self._shell, self._loops + 1
        try:
            while (held := await shell.next()) is not None:
                yield AsyncQueueObject(held)
        finally:
            self._loops -= 1
            if self._loops == 0 and self._ends_with_loops:
                self._ends_with_loops = False
                await self._close()

    # --- for code that does not ---------------------------------------------------------------

    def __enter__(self) -> Self:
        thread = LoopThread("queue-consumer")
        try:
            thread.run(self._open())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        atexit.register(self.__exit__, None, None, None)  # later its thread runs no more
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        atexit.unregister(self.__exit__)
        if thread is not None and not thread.is_of_parent:
            try:
                thread.run(self._close())
            finally:
                thread.close()

    def __iter__(self) -> Iterator[QueueObject]:
        return SharedIterator(self._loop_begins, self._next, self._loop_ends)

    def _loop_begins(self) -> None:
        with self._lock:
            if self._thread is None:
                self.__enter__()
                self._ends_with_loops = True
            self._loops += 1

    def _loop_ends(self) -> None:
        with self._lock:
            self._loops -= 1
            if self._loops == 0 and self._ends_with_loops:
                self._ends_with_loops = False
                self.__exit__(None, None, None)

    def _next(self) -> QueueObject | None:
        thread, shell = self._thread, self._shell
        if thread is None or shell is None:  # `with` around the loop has ended
            return None
        held = thread.run(shell.next(threading.get_ident()))
        return None if held is None else QueueObject(held, thread)

    # --- both ---------------------------------------------------------------------------------

    async def _open(self) -> ConsumerShell:
        if self._shell is not None:
            raise RuntimeError("expected a consumer that has not begun, this one has")
        urls = await find_producers(self._urls, self._trust, self._headers)
        for name in self._settings.access or ():
            if name not in urls:
                known = ", ".join(sorted(urls)[:8])
                raise InputError("access", "", f"expected producers ({known}), got {name!r}")
        settings = replace(self._settings, producers=tuple(urls))
        if settings.avoid_visited:
            shares = (settings.access or dict.fromkeys(urls, 1.0)).values()
            reached = sum(share > 0.0 for share in shares)
            settings = replace(settings, max_hops=min(settings.max_hops, reached))
        self._loop = asyncio.get_running_loop()
        self._shell = ConsumerShell(settings, urls, self._trust, headers=self._headers)
        if self._stopped:
            self._shell.stop()
        return self._shell

    async def _close(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            await shell.close()


def consume(
    urls: Sequence[str] | str,
    *,
    max_hops: int = 3,
    at_once: int = 1,
    access: Access = "learned",
    avoid_visited: bool = True,
    name: str | None = None,
    take_s: float = 30.0,
    token: str | None = None,
    ca_file: str | None = None,
) -> Consumer:
    """Returns what gives the objects of a queue, for `async for` and for `for`.

    `urls` are those of one producer or more; these know the others. `max_hops` is how many
    producers one probe visits at most, `at_once` how many objects may be held at the same time.
    `access` says which producers are asked: mostly those from which objects came ("learned"), all
    alike ("uniform"), or by given probabilities. With `avoid_visited` a probe visits no producer
    twice; Johnson's rule is "uniform" without that (decision 0039). One call to a producer
    lasts `take_s` at most; then the next one begins. `token` is the secret of an API token to show
    (roles submit and read; default: what SPILLOVER_TOKEN says in the environment, if anything).
    Where urls are https, a producer has to prove that it is the host of its url, to a CA of
    `ca_file`, else of the file that SPILLOVER_CA_FILE names, or else of the system.

    Raises InputError for what cannot be meant; the loop raises Unreachable where no producer
    answers at its start, and Rejected where one does not let it in.
    """
    checked_count("max_hops", max_hops, PRODUCERS_MAX)
    checked_count("at_once", at_once)
    checked_flag("avoid_visited", avoid_visited)
    checked_seconds("take_s", take_s, DEADLINE_S_MAX)
    settings = ConsumerSettings(
        name=f"consumer-{secrets.token_hex(4)}" if name is None else _checked_name(name),
        producers=(),
        access=_checked_access(access),
        learns=access == "learned",
        max_hops=max_hops,
        avoid_visited=avoid_visited,
        at_once=at_once,
        take_s=take_s,
    )
    trust = Trust(ca_file)
    return Consumer(checked_urls(urls, trust), settings, trust, bearer_headers(token))


def _checked_delay(delay_s: object) -> float | None:
    if delay_s is None:
        return None
    if not is_number(delay_s) or not 0.0 <= delay_s <= DELAY_S_MAX:
        raise wrong("delay_s", f"seconds from 0 to {DELAY_S_MAX:g}", delay_s)
    return float(delay_s)


def _is_failure(kind: type[BaseException] | None) -> bool:
    """Returns whether the handler failed; one that was cancelled or interrupted has not."""
    return kind is not None and issubclass(kind, Exception)


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not is_name(name, NAME_LENGTH_MAX):
        expected = f"1 to {NAME_LENGTH_MAX} printable characters, no blank at either end"
        raise wrong("name", expected, name)
    return name


def _checked_access(access: Access) -> dict[str, float] | None:
    """Returns the access probabilities; None is all alike, at first."""
    if not isinstance(access, Mapping):
        if access not in ("uniform", "learned"):
            expected = f"expected uniform, learned or probabilities by producer, got {access!r}"
            raise InputError("access", "", expected)
        return None
    shares = dict(access)
    for name, share in shares.items():
        if not isinstance(name, str):
            raise wrong("access", "ids of producers", name)
        if not is_number(share) or not 0.0 <= share <= 1.0:
            raise wrong(name, "a probability", share, source="access")
    total = math.fsum(shares.values())
    if abs(total - 1.0) > ACCESS_ERROR_MAX:
        expected = f"expected probabilities that sum to 1, got {total:.9g}"
        raise InputError("access", "", expected)
    return shares
