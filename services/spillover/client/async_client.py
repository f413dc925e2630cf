"""The client for code that awaits. `calls` gets its requests to nodes."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from os import PathLike
from random import Random
from typing import TYPE_CHECKING, Literal, Self, TypeVar, overload

from spillover.client import wire
from spillover.client.call import Call, Header, Stats
from spillover.client.calls import ClientCalls
from spillover.client.job import AsyncJob
from spillover.client.mapping import OnProgress, Window, checked_payloads, length_of, map_async
from spillover.client.nodes import Nodes
from spillover.client.retrying import Retries
from spillover.client.session import FederationFollower, store_at
from spillover.client.wire import Answer
from spillover.live.http1.base_url import BaseUrl
from spillover.live.http1.bearer import bearer_headers
from spillover.live.http1.outgoing import Response
from spillover.live.http1.trust import Trust
from spillover.model.arguments import (
    checked_count,
    checked_flag,
    checked_function,
    checked_seconds,
    wrong,
)
from spillover.model.errors import InputError, SpilloverError, blamed_on

if TYPE_CHECKING:
    from spillover.live.membership.store import ConfigurationStore

P = TypeVar("P")

DEADLINE_S = 60.0
CONNECTIONS_MAX = 1000


class AsyncSpillover:
    """A client of a federation.

        async with AsyncSpillover(["http://127.0.0.1:8101", "http://127.0.0.1:8102"]) as spillover:
            answer = await spillover.run({"text": "again and again"})
            print(answer.result, answer.cluster)

    Requests go to the first node while it can be reached and takes them, else to the next. A
    request that surely did not run is sent again by itself, and so is one that has a name: the
    answer to the same name is the same. Every request gets a name, unless it is to run at most
    once. Each retry of a request that a node has seen costs a token of a budget (`Retries`), so
    that clients do not make an overload worse.

    `token` is the secret of an API token to show the nodes (default: what SPILLOVER_TOKEN says in
    the environment, if anything). No more than `connections_max` requests are under way at a time
    (and no more than half of the files that the process may open); others wait here.

    With `follow` the client has a session at one node from its first request on. It learns there
    which nodes there are, takes its even part of any that join, and leaves those that go. Without
    it the client stays with the nodes that it was given, in their order: sites are not all as near.
    Where nodes keep their configuration in Redis, `redis_url` (or the path of a file that has it,
    whose password may change) and the name of the `federation` let a client that follows read it
    there, too: it finds nodes when all that it knew have gone.

    Where urls are https, a node has to prove that it is the host of its url, to a CA of `ca_file`,
    else of the file that the environment names as SPILLOVER_CA_FILE, else of the system.

    All errors are SpilloverError and say in `surely_did_not_run` whether the work was not done.
    A client belongs to the event loop of its first request; `close` it, or use `async with`. Raises
    InputError for arguments that make no sense.
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
        checked_count("connections_max", connections_max)
        checked_flag("follow", follow)
        if not isinstance(retries, Retries | None):
            raise wrong("retries", "a Retries", retries)
        self._nodes = Nodes(checked_urls(nodes), Random())
        at_most = max(min(connections_max, _files_at_hand() // 2), 1)
        shown = bearer_headers(token)
        trust = Trust(ca_file)
        headers = (wire.JSON_HEADER, *shown)
        self._calls = ClientCalls(self._nodes, headers, retries or Retries(), at_most, trust)
        store = _store(redis_url, federation, follows=follow)
        self._following = FederationFollower(self._nodes, shown, trust, store) if follow else None
        if self._following is not None:
            self._calls.on_begin = self._following.start
        self._unnamed: dict[str, tuple[str, float]] = {}
        """Nodes of the jobs whose names the client made up, and when their deadlines pass."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._nodes.current} {self.stats}>"

    @property
    def nodes(self) -> Nodes:
        """The nodes of this client, and the one that is asked."""
        return self._nodes

    @property
    def stats(self) -> Stats:
        """Returns counts of the requests so far."""
        return self._calls.stats

    async def run(
        self,
        payload: object,
        *,
        type: str = "default",
        key: str | None = None,
        deadline_s: float = DEADLINE_S,
        priority: int = 0,
        at_most_once: bool = False,
    ) -> Answer:
        """Have a payload handled, and return the answer.

        `key` names the request: the same key at the same node gets the same answer, and the work
        goes on if this call is cancelled. Without one the client makes a name up, and cancels the
        request where this call is cancelled. `deadline_s` counts here, from now on, over all
        retries; work does not begin after it. `priority` is 0 to 9. With `at_most_once` the
        request gets no name, and is never sent again once it may have run, by the client or by a
        node.

        Raises Refused (not now: full, draining), Unreachable, Rejected (the request is at fault),
        Failed (the handler failed), Expired, Cancelled, OutcomeUnknown (it may have run), NotANode
        (the url is wrong) and InputError, all of them SpilloverError.
        """
        call = self._call(payload, (), type, key, deadline_s, priority, at_most_once=at_most_once)
        return await self._calls.carry(call, partial(read_answer, call))

    async def submit(
        self,
        payload: object,
        *,
        type: str = "default",
        key: str | None = None,
        deadline_s: float = DEADLINE_S,
        priority: int = 0,
    ) -> AsyncJob:
        """Have a payload accepted, and return the job at once: await its `result` now or later, ask
        for its `state`, or `cancel` it. `job(key, node=...)` finds it again.

        Arguments and errors are those of `run`; the deadline is the job's. A job without a key is
        cancelled where Ctrl-C ends the client: nobody could find it again.
        """
        call = self._call(payload, (wire.ASYNCHRONOUS,), type, key, deadline_s, priority)
        node = await self._calls.carry(call, partial(_read_accepted, call))
        if call.ours:
            self._remember(call.name, node, call.until_s)
        return AsyncJob(self._calls, call.name, node, self._forget)

    def job(self, key: str, *, node: str | None = None) -> AsyncJob:
        """Returns a job that was submitted before, perhaps by another process. `node` is where it
        was submitted; without it, the client's current one. Nothing is asked yet."""
        url = self._nodes.current if node is None else _checked_url(node, "node")
        return AsyncJob(self._calls, wire.checked_key(key), url)

    @overload
    def map(
        self,
        payloads: Iterable[P] | AsyncIterable[P],
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
    ) -> AsyncGenerator[Answer, None]: ...

    @overload
    def map(
        self,
        payloads: Iterable[P] | AsyncIterable[P],
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
    ) -> AsyncGenerator[Answer | SpilloverError, None]: ...

    async def map(
        self,
        payloads: Iterable[P] | AsyncIterable[P],
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
    ) -> AsyncGenerator[Answer | SpilloverError, None]:
        """Run many payloads, at most `at_most` of them at a time, and give their answers in order,
        or as they come.

        Payloads are taken as there is room, so that they may be endless; they may have to be
        awaited. `key` gives the name of each; the deadline of each begins when it is taken.
        `progress` is called with a Progress before each answer. The first error ends the map, or,
        with `return_errors`, is given in its place. A map that is left cancels what is under way.
        """

        async def one(payload: P) -> Answer:
            return await self.run(
                payload,
                type=type,
                key=None if key is None else key(payload),
                deadline_s=deadline_s,
                priority=priority,
                at_most_once=at_most_once,
            )

        checked_payloads(payloads, awaited=True)
        checked_flag("return_errors", return_errors)
        checked_function("key", key)
        checked_function("progress", progress)
        window = Window(at_most, length_of(payloads), ordered=ordered)
        async with aclosing(map_async(payloads, one, window, progress)) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, SpilloverError) and not return_errors:
                    raise outcome
                yield outcome

    async def close(self) -> None:
        """Cancel requests under way that have no key, and close all connections. Jobs go on. In a
        process that was forked from the client's, only the copies of its connections are closed."""
        if self._calls.is_of_parent:
            self._close_copies()
            return
        if self._following is not None:
            await self._following.close()
        await self._calls.close()

    def _close_copies(self) -> None:
        """Close the copies of the connections in a process that was forked from the client's; the
        parent goes on using its own."""
        if self._following is not None:
            self._following.close_copies()
        self._calls.close_copies()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C, a task cancelled
            self._give_up_unnamed()
        await self.close()

    def _call(
        self,
        payload: object,
        headers: tuple[Header, ...],
        type_: str,
        key: str | None,
        deadline_s: float,
        priority: int,
        *,
        at_most_once: bool = False,
    ) -> Call:
        """Returns the call of a request. Raises InputError, before anything is sent."""
        if type_ != "default" or priority != 0 or priority is False:
            headers += wire.option_headers(type_, priority)
        if key is not None:
            wire.checked_key(key)
            if at_most_once:
                raise InputError("at_most_once", "", "expected without a key, which allows repeats")
        checked_flag("at_most_once", at_most_once)
        checked_seconds("deadline_s", deadline_s, wire.DEADLINE_S_MAX)
        until_s = time.monotonic() + deadline_s
        body = wire.encode_payload(payload)
        return Call(body, headers, key, until_s, at_most_once=at_most_once)

    def _remember(self, name: str, node: str, until_s: float) -> None:
        now_s = time.monotonic()
        while self._unnamed and next(iter(self._unnamed.values()))[1] < now_s:
            del self._unnamed[next(iter(self._unnamed))]  # its deadline has ended it
        self._unnamed[name] = node, until_s

    def _forget(self, name: str) -> None:
        self._unnamed.pop(name, None)

    def _give_up_unnamed(self) -> None:
        now_s = time.monotonic()
        for name, (node, until_s) in self._unnamed.items():
            if until_s > now_s:
                self._calls.call_off(node, name)
        self._unnamed.clear()


def _store(
    redis_url: str | os.PathLike[str] | None, federation: str | None, *, follows: bool
) -> ConfigurationStore | None:
    if redis_url is None and federation is None:
        return None
    if not follows:
        raise InputError("redis_url", "", "expected with follow=True alone")
    if not isinstance(redis_url, str | os.PathLike):
        raise InputError("redis_url", "", "expected the url of the nodes' Redis with `federation`")
    if not isinstance(federation, str) or not federation:
        expected = "expected the name of the federation, as in its topology, with `redis_url`"
        raise InputError("federation", "", expected)
    return store_at(redis_url, federation)


def checked_urls(nodes: object) -> list[str]:
    """Returns base URLs in the form in which they are called. Raises InputError, which names the
    one that is no URL."""
    if isinstance(nodes, str | bytes) or not isinstance(nodes, Iterable):
        nodes = [nodes]
    given = list(nodes)
    if not given:
        raise InputError("nodes", "", "expected the url of at least one node")
    return [_checked_url(url, "nodes") for url in given]


def _checked_url(url: object, name: str) -> str:
    if not isinstance(url, str):
        raise wrong(name, "a url", url)
    with blamed_on(name):
        return BaseUrl(url).url


def read_answer(call: Call, node: str, response: Response) -> Answer:
    """Returns the answer in a response, as `Read` asks."""
    return wire.read_answer(node, call.name, response)


def _read_accepted(call: Call, node: str, response: Response) -> str:
    return wire.read_accepted(node, call.name, response)


def _files_at_hand() -> int:
    """Returns how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
