"""The handler `proxy:` alone, in front of services made of raw sockets, and what it tells."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

from spillover.core.overflow.events import NotStarted, ServiceEnded, Start
from spillover.live.handlers.proxy.handler import ProxyWorkers
from spillover.live.handlers.proxy.onward import Ingress
from spillover.live.handlers.proxy.sent_heads import OwnRequest
from spillover.live.http1.heads import read_request
from spillover.model.request import Request
from spillover.model.topology import Cluster
from spillover.model.upstream_urls import passed_to
from support.loop import until
from support.lying_service import lying_service

ENDS = (ServiceEnded, NotStarted)

WAY = Ingress("10.0.0.1", "http", "a-1.spillover")


class Told:
    """Takes answers and ends as the node does: `all` that it was told, in order."""

    def __init__(self):
        self.all = []
        self.sources = []
        self.leaves = False
        """Whether nobody wants an answer any more when it begins."""
        self.health = []

    def begin(self, event, source, head):
        assert event.service_s >= 0.0
        self.all.append(("begins", event.ref, head.status))
        self.sources.append(source)
        if self.leaves:
            source.close("nobody reads it")
        return self

    def piece(self, data):
        last = self.all[-1]
        whole = last[1] + data if last[0] == "body" else data
        self.all[len(self.all) - (last[0] == "body") :] = [("body", whole)]

    def end(self, trailers=()):
        self.all.append(("ends", trailers))

    def hold(self, ref, head, body, trailers):
        self.all.append(("held", ref, head.status, body, trailers))

    def whole(self, event, head, body, trailers):
        assert event.service_s >= 0.0
        self.all.append(("whole", event.ref, head.status, body, trailers))

    def on_end(self, event, at_s):
        assert at_s is None
        self.all.append(event)

    @property
    def event(self):
        """The one end that it was told, behind all else."""
        events = [one for one in self.all if isinstance(one, ENDS)]
        assert events == self.all[-1:]
        return events[0]

    @property
    def passed(self):
        """The status and the body of an answer that was passed on all of it, in whatever pieces."""
        first, *others = self.answer
        if first[0] == "whole":
            assert not others
            return first[2:4]
        (_, body), end = others
        assert (first[0], end[0]) == ("begins", "ends")
        return first[2], body

    @property
    def answer(self):
        """All but that."""
        return self.all[:-1]


class Front:
    """The handler, and what it tells."""

    def __init__(self, urls, **fields):
        self.told = Told()
        cluster = Cluster(id="a", handler=f"proxy:{','.join(urls)}", servers=4, **fields)
        taken = self.told.on_end, self.told.health.append, self.told
        self.workers = ProxyWorkers(passed_to(cluster.handler), cluster, *taken)
        self.upstreams = self.workers.upstreams._all

    def start(self, work=None, *, ref=7, left_s=60.0, keyed=False, **fields):
        request = Request("r", keyed, own() if work is None else work, **fields)
        now_s = time.monotonic()
        self.workers.start(Start(ref, request, now_s, now_s + left_s))

    def held(self, ref=7):
        """How much of its answer is held back; None where there is none, or it is passed on."""
        call = self.workers._calls.get(ref)
        return None if call is None or call.head is None or call.relay else len(call.held)

    async def end(self):
        """What it told last, which is an end."""
        await until(lambda: self.told.all and isinstance(self.told.all[-1], ENDS))
        return self.told.event

    async def ask(self, work=None, **fields):
        self.told.all.clear()
        self.start(work, **fields)
        return await self.end()


def own(*lines, method=b"GET", target=b"/", body=b""):
    """A client's request, as the door has read it."""
    told = (b"Content-Length: %d" % len(body),) if body else ()
    start = b"%b %b HTTP/1.1" % (method, target)
    head = b"".join(b"%b\r\n" % line for line in (start, b"Host: h", *lines, *told))
    return OwnRequest(read_request(head), WAY, body)


@asynccontextmanager
async def in_front_of(*answers, **fields):
    """The handler in front of a service for each of these answers, and the services. What is raised
    where nobody is above to catch it fails the test."""
    raised = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: raised.append(told))
    async with AsyncExitStack() as stack:
        services = [await stack.enter_async_context(lying_service()) for _ in answers]
        for service, answer in zip(services, answers, strict=True):
            service.answer = answer
        front = Front([service.url for service in services], **fields)
        try:
            yield front, *services
        finally:
            await front.workers.close()
    assert raised == []


class Saying:
    """A service that says these, each when `go` is released for it, and nothing more. `left` counts
    who has closed the connection on which it has said them."""

    def __init__(self, *parts):
        self.parts = parts
        self.go = asyncio.Semaphore(0)
        self.left = 0

    async def __call__(self, talk, *_):
        for part in self.parts:
            await self.go.acquire()
            await talk.say(part)
        try:
            await talk.until_closed()
        finally:
            self.left += 1
