"""Handlers whose work can be counted from outside: through a fenced sink, and noted in a diary that
no fence protects. Each record has a number, one more than the checkpoint before it, so that a sink
that took one twice, or none, shows it.

Imported by the members under test, which run in this directory. What the notes must not say is in
`support.leases.reckoning`.
"""

import asyncio
import ctypes
import functools
import json
import os
import signal
import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.lease import Fenced, current_lease
from spillover.live.leases.sinks.redis_sink import AsyncRedisSink, RedisSink
from spillover.live.leases.sinks.sql_sink import SqlSink

GIVEN = json.loads(os.environ["SPILLOVER_TEST_LEASES"])
"""What `support.leases.members` tells: directory, sink_url, sink, node, pace_s, progress."""

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
        if GIVEN["progress"]:
            self.lease.progress()

    def record(self):
        """What is written, as a command to Redis."""
        fields = self._who | {"number": self.number + 1, "at_s": self.at_s}
        fields["deadline_s"] = self.lease.deadline_s - lease_now_s() + now_s()
        words = [word for pair in fields.items() for word in pair]
        return ("XADD", f"{{{GIVEN['sink']}}}:records", "*", *words)

    def acted(self):
        self.number += 1
        self.note("act", self.at_s, number=self.number)

    def obey(self, order):
        """All but what a coroutine awaits."""
        if order["what"] == "stop":
            self.held = StopsOnce(self.lease)
        else:
            obey(order)
        self.note("free")

    def told_to_stop(self):
        self.note("stop", left_s=self.lease.left_s, gap_s=now_s() - self.at_s)

    def refused(self, fenced):
        by = "sink" if "sink" in str(fenced) else "lease"
        self.note("refused", self.at_s, by=by)

    def orders(self):
        """What the test wants of this very handler, once."""
        name = f"{self._who['node']}-{self._who['partition']}"
        taken = DIRECTORY / "taken" / name
        try:
            (DIRECTORY / "orders" / name).rename(taken)
        except FileNotFoundError:
            return None
        order = json.loads(taken.read_text())
        self.note("busy")
        return order


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
                elif order := turn.orders():
                    turn.obey(order)
                turn.try_next()
                sink.apply(turn.held, turn.record(), checkpoint=str(turn.number + 1))
                turn.acted()
        except Fenced as fenced:
            turn.refused(fenced)
        turn.note("end")

    async def on_loop(self, partition, epoch, stop_event):
        """Work on the member's event loop, through a sink on Redis; orders block that loop."""
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
            elif order := turn.orders():
                if order["what"] == "hang":
                    await until_on_loop(functools.partial(goes_on, now_s() + order["for_s"]))
                else:
                    turn.obey(order)
            turn.try_next()
            await sink.apply(turn.held, turn.record(), checkpoint=str(turn.number + 1))
            turn.acted()

    def on_sql(self, partition, epoch, stop_event):
        """Work on a thread, through a sink in SQLite."""
        turn = self._turn(partition, epoch)
        try:
            with closing(sqlite3.connect(DIRECTORY / "records.sqlite", timeout=10.0)) as connection:
                connection.execute("pragma synchronous = off")
                self._work_in_sql(turn, connection, stop_event)
        except Fenced as fenced:
            turn.refused(fenced)
        turn.note("end")

    def _work_in_sql(self, turn, connection, stop_event):
        sink = SqlSink(connection, GIVEN["sink"])
        turn.begins(sink.claim(turn.lease))
        stopped = False
        while not stopped:
            stopped = stop_event.wait(PACE_S)
            if stopped:
                turn.told_to_stop()
            elif order := turn.orders():
                turn.obey(order)
            turn.try_next()
            with sink.transaction(turn.held, checkpoint=str(turn.number + 1)) as cursor:
                names, values = turn.record()[3::2], turn.record()[4::2]
                marks = ", ".join("?" * len(names))
                columns = ", ".join(names).replace("partition", "partition_number")
                cursor.execute(f"insert into records ({columns}) values ({marks})", values)  # noqa: S608
            turn.acted()


def obey(order):
    """Be busy, or hang, as the test wants it."""
    for_s = order["for_s"]
    match order["what"]:
        case "sleep":
            time.sleep(for_s)  # blocks an event loop, and leaves the interpreter to other threads
        case "hold":
            hold_interpreter(for_s)
        case "hang":
            to_s = now_s() + for_s
            while not goes_on(to_s):
                time.sleep(0.02)


async def until_on_loop(condition):
    while not condition():  # noqa: ASYNC110 - it is a file that is waited for
        await asyncio.sleep(0.01)


def goes_on(to_s):
    return now_s() >= to_s or (DIRECTORY / "go-on").exists()


def hold_interpreter(for_s):
    """One call in C that lets no other thread run meanwhile: PyDLL keeps the interpreter."""
    ctypes.PyDLL(None).usleep(int(for_s * 1e6))


_WORKERS = {}


def _worker():
    return _WORKERS.setdefault(GIVEN["node"], Worker(GIVEN["node"]))


def work(partition, epoch, stop_event):
    """See `Worker.on_thread`."""
    _worker().on_thread(partition, epoch, stop_event)


async def work_async(partition, epoch, stop_event):
    """See `Worker.on_loop`."""
    await _worker().on_loop(partition, epoch, stop_event)


def work_sql(partition, epoch, stop_event):
    """See `Worker.on_sql`."""
    _worker().on_sql(partition, epoch, stop_event)
