"""Producers of objects as users see them: `async with produce(...)` and `with`."""

from __future__ import annotations

import atexit
import math
import time
from collections.abc import Sequence
from typing import TypeAlias

from spillover.live.engine.loop_thread import LoopThread
from spillover.live.http1.bearer import bearer_headers
from spillover.live.http1.client import HttpClient
from spillover.live.http1.trust import Trust
from spillover.live.queue import client_wire as wire
from spillover.live.queue.directory import checked_urls, none_reached
from spillover.model.arguments import checked_seconds
from spillover.model.errors import (
    InputError,
    NotDelivered,
    OutcomeUnknown,
    Refused,
    Rejected,
)

BODY_S = 60.0
"""An object may take so long to get to its producer, beyond the time that it may wait for a place
there."""

PASSED_OVER_S = 1.0
"""A producer that could not be reached is asked last for so long."""

Content: TypeAlias = bytes | bytearray | memoryview


class AsyncQueue:
    """This puts objects into a queue, by the given producers. It is made in a running loop."""

    def __init__(
        self, urls: Sequence[str], deadline_s: float, trust: Trust, headers: wire.Headers = ()
    ) -> None:
        self._clients = {url: wire.client_of(url, trust, headers) for url in urls}
        self._deadline_s = deadline_s
        self._failed_s: dict[str, float] = {}

    async def put(
        self,
        body: Content,
        *,
        content_type: str = wire.CONTENT_TYPE,
        deadline_s: float | None = None,
    ) -> str:
        """Have an object kept, and return its name once it is. The first producer that can be
        reached takes it, and has it wait for a place until the deadline.

        Raises QueueFull if there was no place until then, Refused where producers are draining,
        Unreachable if none can be reached, Rejected if it is too large: then the object surely is
        not in the queue. Raises OutcomeUnknown if an answer was lost: it may be.
        """
        content = _checked_content(body)
        limit_s = self._deadline_s
        if deadline_s is not None:
            limit_s = checked_seconds("deadline_s", deadline_s, wire.DEADLINE_S_MAX)
        until_s = time.monotonic() + limit_s
        headers = [(b"content-type", _header_value(content_type))]
        refused: Refused | None = None
        unreached: list[NotDelivered] = []
        for url in self._in_turn():
            left_s = until_s - time.monotonic()
            if left_s <= 0.0:
                break
            try:
                return await self._put_at(url, content, headers, left_s)
            except Refused as error:
                refused = error
            except Rejected:
                raise
            except NotDelivered as error:
                self._failed_s[url] = time.monotonic()
                unreached.append(error)
        if refused is not None:
            raise refused
        raise none_reached(unreached)

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()

    async def _put_at(
        self, url: str, content: bytes, headers: list[tuple[bytes, bytes]], left_s: float
    ) -> str:
        client: HttpClient = self._clients[url]
        response = await client.request(
            "POST",
            "/objects",
            headers=[*headers, wire.deadline(left_s)],
            body=content,
            timeout_s=left_s + BODY_S,
        )
        if response.status == 201:
            return wire.read_created(response)
        error = wire.error_of(url, response)
        if error is None:
            raise OutcomeUnknown(f"{url}: status {response.status} is no answer of a producer")
        raise error

    def _in_turn(self) -> list[str]:
        """Returns the producers in the given order, those that could not be reached lately behind
        the others."""
        now_s = time.monotonic()
        return sorted(
            self._clients,
            key=lambda url: now_s < self._failed_s.get(url, -math.inf) + PASSED_OVER_S,
        )


class Queue:
    """An AsyncQueue for code that never awaits; from any number of threads."""

    def __init__(self, queue: AsyncQueue, thread: LoopThread) -> None:
        self._queue = queue
        self._thread = thread

    def put(
        self,
        body: Content,
        *,
        content_type: str = wire.CONTENT_TYPE,
        deadline_s: float | None = None,
    ) -> str:
        """Do the same as `AsyncQueue.put`."""
        putting = self._queue.put(body, content_type=content_type, deadline_s=deadline_s)
        return self._thread.run(putting)


class Producer:
    """The entrance of objects: `async with` gives an AsyncQueue, `with` a Queue."""

    def __init__(
        self, urls: Sequence[str], deadline_s: float, trust: Trust, headers: wire.Headers = ()
    ) -> None:
        self._headers = headers
        self._trust = trust
        self._urls = urls
        self._deadline_s = deadline_s
        self._queue: AsyncQueue | None = None
        self._thread: LoopThread | None = None

    async def __aenter__(self) -> AsyncQueue:
        self._queue = AsyncQueue(self._urls, self._deadline_s, self._trust, self._headers)
        return self._queue

    async def __aexit__(self, *_: object) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            await queue.close()

    def __enter__(self) -> Queue:
        self._thread = LoopThread("queue-producer")
        atexit.register(self.__exit__, None, None, None)  # later its thread runs no more
        return Queue(self._thread.run(self.__aenter__()), self._thread)

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        atexit.unregister(self.__exit__)
        if thread is not None and not thread.is_of_parent:
            try:
                thread.run(self.__aexit__(None, None, None))
            finally:
                thread.close()


def produce(
    urls: Sequence[str] | str,
    *,
    deadline_s: float = 30.0,
    token: str | None = None,
    ca_file: str | None = None,
) -> Producer:
    """Returns what objects are put into a queue with, for `async with` and for `with`.

    `urls` are those of producers, the one to be used first in front. An object waits for a place
    until its deadline. `token` is the secret of an API token to show (role submit; default: what
    SPILLOVER_TOKEN says in the environment, if anything). `ca_file` is as for `consume`. Raises
    InputError for what cannot be meant.
    """
    trust = Trust(ca_file)
    deadline_s = checked_seconds("deadline_s", deadline_s, wire.DEADLINE_S_MAX)
    told = checked_urls(urls, trust), deadline_s, trust, bearer_headers(token)
    return Producer(*told)


def _checked_content(body: Content) -> bytes:
    if not isinstance(body, Content):
        raise InputError("body", "", f"expected bytes, got {type(body).__name__}")
    return bytes(body)  # no copy of what is bytes already


def _header_value(content_type: str) -> bytes:
    if not (content_type.isascii() and content_type.isprintable()):
        expected = f"expected printable ASCII characters, got {content_type!r}"
        raise InputError("content_type", "", expected)
    return content_type.encode()
