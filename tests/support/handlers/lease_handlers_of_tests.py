"""Handlers whose work can be counted from outside: through a fenced sink, and noted in a diary that
no fence protects. Each record has a number, one more than the checkpoint before it, so that a sink
that took one twice, or none, shows it.

Imported by the members under test, which run in this directory. What the notes must not say is in
`support.leases.reckoning`.
"""

import asyncio
import functools
import json
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.lease import Fenced, current_lease
from spillover.live.leases.sinks.redis_sink import AsyncRedisSink, RedisSink

GIVEN = json.loads(os.environ["SPILLOVER_TEST_LEASES"])
"""What `support.leases.members` tells: directory, sink_url, sink, node, pace_s."""

DIRECTORY = Path(GIVEN["directory"])
PACE_S = GIVEN["pace_s"]


def now_s():
    """The same for all processes of a machine, whatever their wall clocks say."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def _end_with_parent(parent):
    """A test that was killed leaves nothing behind."""
    while os.getppid() == parent:
        threading.Event().wait(1.0)
    os._exit(1)


threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


class Turn:
    """One lease, as its handler lives through it; `node` notes what it does."""

    def __init__(self, diary, node, partition, epoch):
        self.lease = self.held = current_lease()
        self.number = 0
        self.at_s = now_s()
        self._diary = diary
        self._who = {"partition": partition, "epoch": epoch, "node": node, "pid": os.getpid()}

    def note(self, what, at_s=None, **more):
        """`at_s`, if given, was read before what is noted was tried."""
        line = self._who | {"what": what, "at_s": now_s() if at_s is None else at_s} | more
        os.write(self._diary, json.dumps(line).encode() + b"\n")

    def begins(self, checkpoint):
        self.number = int(checkpoint or 0)
        self.note("begin", self.at_s, number=self.number)

    def try_next(self):
        """About to act: the instant counts as one at which the lease was valid if it is let do."""
        self.at_s = now_s()

    def record(self):
        """What is written, as a command to Redis."""
        fields = self._who | {"number": self.number + 1, "at_s": self.at_s}
        fields["deadline_s"] = self.lease.deadline_s - lease_now_s() + now_s()
        words = [word for pair in fields.items() for word in pair]
        return ("XADD", f"{{{GIVEN['sink']}}}:records", "*", *words)

    def acted(self):
        self.number += 1
        self.note("act", self.at_s, number=self.number)

    def told_to_stop(self):
        self.note("stop", left_s=self.lease.left_s, gap_s=now_s() - self.at_s)

    def refused(self, fenced):
        by = "sink" if "sink" in str(fenced) else "lease"
        self.note("refused", self.at_s, by=by)

    def heed_order(self):
        """The test may want this very handler to stand still once, as `StopsOnce` does."""
        order = DIRECTORY / "orders" / f"{self._who['node']}-{self._who['partition']}"
        if order.exists():
            order.unlink()
            self.held = StopsOnce(self.lease)


class StopsOnce:
    """A lease whose holder stands still just after it was told that it may act."""

    def __init__(self, lease):
        self.partition, self.epoch = lease.partition, lease.epoch
        self._lease = lease
        self._stops = True

    def check(self):
        self._lease.check()
        if self._stops:
            self._stops = False
            # By this very thread: else it would go on until another one has taken the signal.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class Worker:
    """The handlers of one node."""

    def __init__(self, node):
        path = DIRECTORY / "diaries" / f"{node}-{os.getpid()}"
        self._diary = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._node = node

    @functools.cached_property
    def _client(self):
        once = Retry(NoBackoff(), 0)
        return Redis.from_url(GIVEN["sink_url"], retry=once, decode_responses=True)

    def _turn(self, partition, epoch):
        return Turn(self._diary, self._node, partition, epoch)

    def on_thread(self, partition, epoch, stop_event):
        """Work on a thread, through a sink on Redis."""
        turn = self._turn(partition, epoch)
        sink = RedisSink(self._client, GIVEN["sink"])
        try:
            turn.begins(sink.claim(turn.lease))
            stopped = False
            while not stopped:
                stopped = stop_event.wait(PACE_S)
                if stopped:
                    turn.told_to_stop()
                turn.heed_order()
                turn.try_next()
                sink.apply(turn.held, turn.record(), checkpoint=str(turn.number + 1))
                turn.acted()
        except Fenced as fenced:
            turn.refused(fenced)
        turn.note("end")

    async def on_loop(self, partition, epoch, stop_event):
        """Work on the member's event loop, through a sink on Redis."""
        turn = self._turn(partition, epoch)
        once = AsyncRetry(NoBackoff(), 0)
        try:
            async with AsyncRedis.from_url(
                GIVEN["sink_url"], retry=once, decode_responses=True
            ) as client:
                await self._work_on_loop(turn, AsyncRedisSink(client, GIVEN["sink"]), stop_event)
        except Fenced as fenced:
            turn.refused(fenced)
        except asyncio.CancelledError:
            turn.note("cancelled")
            raise
        turn.note("end")

    async def _work_on_loop(self, turn, sink, stop_event):
        turn.begins(await sink.claim(turn.lease))
        stopped = False
        while not stopped:
            with suppress(TimeoutError):
                async with asyncio.timeout(PACE_S):
                    await stop_event.wait_async()
            stopped = stop_event.is_set()
            if stopped:
                turn.told_to_stop()
            turn.try_next()
            await sink.apply(turn.held, turn.record(), checkpoint=str(turn.number + 1))
            turn.acted()


_WORKERS = {}


def _worker():
    return _WORKERS.setdefault(GIVEN["node"], Worker(GIVEN["node"]))


def work(partition, epoch, stop_event):
    """See `Worker.on_thread`."""
    _worker().on_thread(partition, epoch, stop_event)


async def work_async(partition, epoch, stop_event):
    """See `Worker.on_loop`."""
    await _worker().on_loop(partition, epoch, stop_event)
