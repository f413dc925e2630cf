"""The client for code that never awaits: it runs the asynchronous one in a loop of its own."""

from __future__ import annotations

import atexit
import concurrent.futures
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from threading import Lock
from typing import Literal, Self, TypeVar, overload

from spillover.client.async_client import (
    CONNECTIONS_MAX,
    DEADLINE_S,
    AsyncSpillover,
    read_answer,
)
from spillover.client.call import Stats
from spillover.client.job import Job
from spillover.client.mapping import OnProgress, Window, checked_payloads, length_of, map_here
from spillover.client.nodes import Nodes
from spillover.client.retrying import Retries
from spillover.client.wire import Answer
from spillover.live.engine.loop_thread import LoopThread
from spillover.model.arguments import checked_flag, checked_function
from spillover.model.errors import SpilloverError

P = TypeVar("P")


class Spillover:
    """An AsyncSpillover for code that never awaits: scripts, threads, notebooks.

        with Spillover("http://127.0.0.1:8101") as spillover:
            print(spillover.run({"text": "again and again"}).result)

    It may be called from any number of threads, and from where an event loop runs. Small requests
    are sent by the thread that calls; what else has to be done is done in a thread of its own,
    which begins with the first call and ends with `close`. A process that forks makes a new client
    in the child: there this one raises RuntimeError, and `close` leaves the parent's connections
    alone.
    """

    def __init__(
        self,
        nodes: str | Sequence[str],
        *,
        token: str | None = None,
        connections_max: int = CONNECTIONS_MAX,
        retries: Retries | None = None,
        follow: bool = False,
        redis_url: str | os.PathLike[str] | None = None,
        federation: str | None = None,
        ca_file: str | PathLike[str] | None = None,
    ) -> None:
        self._client = AsyncSpillover(
            nodes,
            token=token,
            connections_max=connections_max,
            retries=retries,
            follow=follow,
            redis_url=redis_url,
            federation=federation,
            ca_file=ca_file,
        )
        self._lock = Lock()
        self._thread: LoopThread | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Spillover {self.nodes.current} {self.stats}>"

    @property
    def nodes(self) -> Nodes:
        """The nodes of this client, and the one that is asked."""
        return self._client.nodes

    @property
    def stats(self) -> Stats:
        """Returns counts of the requests so far."""
        return self._client.stats

    def run(
        self,
        payload: object,
        *,
        type: str = "default",
        key: str | None = None,
        deadline_s: float = DEADLINE_S,
        priority: int = 0,
        at_most_once: bool = False,
    ) -> Answer:
        """Do the same as `AsyncSpillover.run`. Ctrl-C cancels the request."""
        thread, client = self._loop_thread(), self._client
        thread.check_process()
        call = client._call(  # noqa: SLF001 - one rule for both
            payload, (), type, key, deadline_s, priority, at_most_once=at_most_once
        )
        return client._calls.carry_here(call, partial(read_answer, call), thread.run)  # noqa: SLF001

    def submit(
        self,
        payload: object,
        *,
        type: str = "default",
        key: str | None = None,
        deadline_s: float = DEADLINE_S,
        priority: int = 0,
    ) -> Job:
        """Do the same as `AsyncSpillover.submit`."""
        thread = self._loop_thread()
        submitting = self._client.submit(
            payload, type=type, key=key, deadline_s=deadline_s, priority=priority
        )
        return Job(thread.run(submitting), thread)

    def job(self, key: str, *, node: str | None = None) -> Job:
        """Do the same as `AsyncSpillover.job`."""
        return Job(self._client.job(key, node=node), self._loop_thread())

    @overload
    def map(
        self,
        payloads: Iterable[P],
        *,
        type: str = ...,
        key: Callable[[P], str] | None = ...,
        deadline_s: float = ...,
        priority: int = ...,
        at_most_once: bool = ...,
        at_most: int = ...,
        ordered: bool = ...,
        return_errors: Literal[False] = False,
        progress: OnProgress | None = ...,
    ) -> Generator[Answer, None, None]: ...

    @overload
    def map(
        self,
        payloads: Iterable[P],
        *,
        type: str = ...,
        key: Callable[[P], str] | None = ...,
        deadline_s: float = ...,
        priority: int = ...,
        at_most_once: bool = ...,
        at_most: int = ...,
        ordered: bool = ...,
        return_errors: bool,
        progress: OnProgress | None = ...,
    ) -> Generator[Answer | SpilloverError, None, None]: ...

    def map(
        self,
        payloads: Iterable[P],
        *,
        type: str = "default",
        key: Callable[[P], str] | None = None,
        deadline_s: float = DEADLINE_S,
        priority: int = 0,
        at_most_once: bool = False,
        at_most: int = 64,
        ordered: bool = True,
        return_errors: bool = False,
        progress: OnProgress | None = None,
    ) -> Generator[Answer | SpilloverError, None, None]:
        """Do the same as `AsyncSpillover.map`. Payloads are taken, and `key` and `progress` are
        called, in the thread that takes the answers."""
        thread = self._loop_thread()

        def begin(payload: P) -> concurrent.futures.Future[Answer]:
            running = self._client.run(
                payload,
                type=type,
                key=None if key is None else key(payload),
                deadline_s=deadline_s,
                priority=priority,
                at_most_once=at_most_once,
            )
            return thread.begin(running)

        checked_payloads(payloads, awaited=False)
        checked_flag("return_errors", return_errors)
        checked_function("key", key)
        checked_function("progress", progress)
        window = Window(at_most, length_of(payloads), ordered=ordered)
        with closing(map_here(payloads, begin, window, progress)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, SpilloverError) and not return_errors:
                    raise outcome
                yield outcome

    def close(self) -> None:
        """Do the same as `AsyncSpillover.close`. The second call does nothing."""
        self._end(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(kind)

    def _loop_thread(self) -> LoopThread:
        with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed")
            if self._thread is None:
                self._thread = LoopThread("spillover-client")
                atexit.register(self.close)  # later its thread runs no more
            return self._thread

    def _end(self, kind: type[BaseException] | None) -> None:
        if self._thread is not None and self._thread.is_of_parent:  # which may hold the lock
            self._thread, self._closed = None, True
            atexit.unregister(self.close)
            self._client._close_copies()  # noqa: SLF001 - one client, two faces
            return
        with self._lock:
            thread, self._thread, self._closed = self._thread, None, True
        if thread is None:
            return
        atexit.unregister(self.close)
        try:
            thread.run(self._client.__aexit__(kind, None, None))
        finally:
            thread.close()
