"""The servers of one cluster with a handler, as its node drives them."""

import asyncio
import json
import time

import msgspec

from spillover.core.overflow.events import ServiceEnded, Start
from spillover.live.engine.timers import Timers
from spillover.live.handlers.make import make_workers
from spillover.model.request import Outcome, Request
from spillover.model.topology import Cluster
from support.loop import until


class Rig:
    """`told` has all that they report: ends, and whether anything can be started."""

    def __init__(self, handler, *, servers=4, **fields):
        self.told = []
        self.refs = 0
        self.timers = Timers(asyncio.get_running_loop())
        self.on_health = self.told.append
        self.cluster = Cluster(id="a", servers=servers, handler=handler, **fields)
        self.workers = make_workers(
            self.cluster, "test: cluster a", self.timers, self.on_end, self._hear
        )

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.workers.close()
        self.timers.close()

    def on_end(self, event, at_s):
        assert at_s is None
        self.told.append(event)

    def _hear(self, can_start):
        self.on_health(can_start)

    def start(self, payload=b"{}", *, deadline_s=30.0, **fields):
        """Bytes are JSON already."""
        self.refs += 1
        work = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        fields = {"id": f"r{self.refs}", "keyed": False, **fields}
        request = Request(work=msgspec.Raw(work), **fields)
        now_s = time.monotonic()
        self.workers.start(Start(self.refs, request, now_s, now_s + deadline_s))
        return self.refs

    def ended(self, ref):
        found = [event for event in self.told if getattr(event, "ref", None) == ref]
        assert len(found) <= 1
        return found[0] if found else None

    async def end(self, ref):
        await until(lambda: self.ended(ref))
        return self.ended(ref)

    async def run(self, *args, **fields):
        return await self.end(self.start(*args, **fields))

    async def result(self, *args, **fields):
        return result(await self.run(*args, **fields))

    def health(self):
        return [told for told in self.told if isinstance(told, bool)]


def result(event):
    assert isinstance(event, ServiceEnded), event
    assert event.outcome is Outcome.DONE, event
    return json.loads(bytes(memoryview(event.result)))
