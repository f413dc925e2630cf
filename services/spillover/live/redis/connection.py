"""The way to Redis: a few connections, scripts by digest, and errors that say who is to blame.

The library is loaded when the first store is made, not before: nodes need no Redis. It never tries
again by itself: what came of a call is for the member to judge. What the scripts mean is in
`live.leases.store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from spillover.live.redis.answers import of_no_single_server
from spillover.live.redis.rotation import RedisAddress, RedisUrl
from spillover.model.errors import StoreRefused, StoreUnreachable
from spillover.model.extras import missing_extra

if TYPE_CHECKING:
    from redis.asyncio import Redis

NOT_READY = ("LOADING", "MASTERDOWN", "BUSY", "FAILOVER")
"""Answers of a server that will be able to later: the first word."""

_WITHIN_A_SCRIPT = re.compile(r"^Error running script \(call to \w+\): (@\w+: ?\d+: )+-?")
"""Redis before 7 puts this before the error of a command within a script."""

ASYNC, THREADS = "redis.asyncio", "redis"
"""The library for tasks, and the same for threads."""

CONNECTIONS_MAX = 8
"""The most connections of one store. More calls than that wait for a free one, within their time
limit."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script in Lua, and the digest by which Redis knows it."""

    text: str
    digest: str

    @classmethod
    def of(cls, text: str) -> Script:
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    @classmethod
    def load(cls, package: str, *names: str) -> Script:
        """Returns the files of these names in `lua/` of a package, one after another: Lua in Redis
        has no `require`."""
        folder = resources.files(package) / "lua"
        return cls.of("\n".join((folder / f"{name}.lua").read_text("utf-8") for name in names))


def open_client(
    url: RedisUrl | RedisAddress,
    timeout_s: float,
    connections: int = CONNECTIONS_MAX,
    library: str = ASYNC,
    *,
    as_text: bool = True,
) -> Any:
    """Returns a client of the `library` that has connected nowhere yet, and gets text or bytes.
    `timeout_s` holds for connecting, for each answer and for a free connection. Raises InputError
    without the library, or if `url` is none."""
    try:
        redis = importlib.import_module(library)
        retry = importlib.import_module(f"{library}.retry").Retry
        from redis.backoff import NoBackoff  # noqa: PLC0415

        from spillover.live.redis import pools  # noqa: PLC0415
    except ImportError:
        raise missing_extra("a lease group", "leases", "redis") from None
    pool = (pools.AsyncPool if library == ASYNC else pools.BlockingPool).at(
        RedisAddress.of(url),
        max_connections=connections,
        timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=retry(NoBackoff(), 0),
        decode_responses=as_text,
        encoding_errors="replace" if as_text else "strict",
        protocol=2,
    )
    return redis.Redis(connection_pool=pool)


def failures() -> tuple[type[Exception], ...]:
    """Returns what the library raises where Redis or the way to it is broken. RuntimeError is
    uvloop's word for a connection that was closed this very moment, AttributeError the library's
    for one that another call has just given up, ValueError for an answer that is none of Redis's.
    """
    from redis.exceptions import RedisError  # noqa: PLC0415

    return RedisError, OSError, RuntimeError, AttributeError, ValueError


async def close_quietly(*closes: Callable[[], Awaitable[object]]) -> None:
    """Each of the library's closes, whatever it says. A server that hangs does not take leave of
    TLS, which the library makes an error of; the connection has been given up all the same."""
    for close in closes:
        with contextlib.suppress(*failures()):
            await close()


def is_read_only(error: Exception) -> bool:
    """Returns whether a server refuses to be written to. Redis before 7 says so inside of an error
    of the script that tried."""
    from redis.exceptions import ReadOnlyError, ResponseError  # noqa: PLC0415

    said = _WITHIN_A_SCRIPT.sub("", str(error))
    return isinstance(error, ReadOnlyError) or (
        isinstance(error, ResponseError) and said.startswith("READONLY ")
    )


def failed(error: Exception, client: Any, place: str) -> StoreRefused | StoreUnreachable:
    """Returns what an error of a client of `open_client` means for whoever asked. After READONLY,
    when the name may lead to another server, each connection is made anew before its next call."""
    if is_read_only(error):
        client.connection_pool.connect_anew()
    return told_error(error, place)


def told_error(error: Exception, place: str) -> StoreRefused | StoreUnreachable:
    """Returns what an error of the library means for whoever asked."""
    from redis import exceptions  # noqa: PLC0415

    said = _WITHIN_A_SCRIPT.sub("", str(error).partition("\n")[0]) or type(error).__name__
    # Without a password, Redis takes a long command for a flaw in the protocol.
    if isinstance(error, exceptions.AuthenticationError) or "unauthenticated" in said:
        return StoreRefused(f"{place} wants a user or password other than given: {said}")
    if is_read_only(error):
        return StoreRefused(f"{place} is read-only, a replica perhaps: leases need its primary")
    if isinstance(error, exceptions.ResponseError | exceptions.BusyLoadingError):
        return _told_answer(error, place, said)
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return StoreUnreachable(f"{place} did not answer in time")
    if isinstance(error, AttributeError):
        said = "the connection was given up this moment"
    return StoreUnreachable(f"{place} cannot be reached: {said}")


def _told_answer(error: Exception, place: str, said: str) -> StoreRefused | StoreUnreachable:
    from redis import exceptions  # noqa: PLC0415

    # The library takes the code off some of what a server answers.
    kind = type(error).__name__
    if (why := of_no_single_server(said, kind)) is not None:
        passing = exceptions.ClusterDownError | exceptions.TryAgainError
        return (StoreUnreachable if isinstance(error, passing) else StoreRefused)(f"{place} {why}")
    later = exceptions.BusyLoadingError | exceptions.MasterDownError
    if isinstance(error, later) or said.startswith(NOT_READY):
        return StoreUnreachable(f"{place} is not ready: {said}")
    return StoreRefused(f"{place} refused: {said}")


def cancels_so_far() -> int:
    """Returns how often the running task has been cancelled. The library may swallow a
    cancellation: it writes within `asyncio.wait_for`, which in Python 3.11 lets an end win over a
    cancellation of the same moment. Whoever calls it compares this with what it was before."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class RedisLink:
    """One store's connections. `round_trips` counts what was sent and waited for."""

    def __init__(
        self,
        url: RedisUrl | RedisAddress,
        timeout_s: float,
        connections: int = CONNECTIONS_MAX,
    ) -> None:
        address = RedisAddress.of(url)
        self._client: Redis = open_client(address, timeout_s, connections)
        self._timeout_s = timeout_s
        self.place = address.place
        self.round_trips = 0

    async def call(self, *command: str | float) -> Any:
        """One command. Raises StoreRefused, StoreUnreachable."""
        return await self._told(self._execute(*command))

    async def calls(self, *commands: Sequence[str | float]) -> list[Any]:
        """Several commands on one way there and back, in order, with others' in between."""
        pipe = self._client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        answers: list[Any] = await self._told(pipe.execute())
        return answers

    async def run(self, script: Script, keys: Sequence[str], *arguments: str | float) -> Any:
        """One script: by its digest, and once in full if the server does not know it (any more).
        An error that the script itself answers is raised as StoreRefused."""
        from redis.exceptions import NoScriptError  # noqa: PLC0415

        given = (len(keys), *keys, *arguments)
        try:
            return await self._told(self._execute("EVALSHA", script.digest, *given), NoScriptError)
        except NoScriptError:
            return await self.call("EVAL", script.text, *given)

    async def close(self) -> None:
        await close_quietly(self._client.aclose, self._client.connection_pool.disconnect)

    def _execute(self, *command: str | float) -> Awaitable[Any]:
        return self._client.execute_command(*command)  # type: ignore[no-untyped-call]

    async def _told(self, answer: Awaitable[Any], *passed: type[Exception]) -> Any:
        self.round_trips += 1
        cancels = cancels_so_far()
        try:
            # The library's limit is for each read; this one is for the whole call.
            async with asyncio.timeout(2.0 * self._timeout_s):
                given = await answer
                if cancels_so_far() > cancels:
                    raise asyncio.CancelledError
                return given
        except passed:
            raise
        except failures() as error:
            raise failed(error, self._client, self.place) from None
