"""Producers of the distributed queue as processes: how they start and end, and what is left of what
was acknowledged when they are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

from support.ports import free_ports
from support.queue_service import Producer, call, fetched, until

COMMAND = (sys.executable, "-m", "spillover", "queue")
SEED = int(os.environ.get("SPILLOVER_SEED", "1"))
GONE = (OSError, HTTPException)


class Process:
    """One `spillover queue`, which can be started again."""

    def __init__(self, *options: str) -> None:
        self.options = options
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *self.options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            self.ready = json.loads(line)
            self.producer = Producer(self.ready["url"])

    def end(self, number: int) -> tuple[int, str]:
        """Its status, and what it said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextmanager
def running(count: int, stores: Path | None = None, *more: str) -> Iterator[list[Process]]:
    urls = {f"p{k + 1}": f"127.0.0.1:{port}" for k, port in enumerate(free_ports(count))}
    found: list[Process] = []
    try:
        for name, url in urls.items():
            options = ["--id", name, "--bind", url, "--probe-expiry-ms", "1000", *more]
            for peer in urls.keys() - {name}:
                options += ["--peer", f"{peer}=http://{urls[peer]}"]
            if stores is not None:
                options += ["--store", str(stores / name)]
            found.append(Process(*options))
        yield found
    finally:
        for one in found:
            if one.process.poll() is None:
                one.end(signal.SIGKILL)


def test_sigterm_waits_for_acknowledgements_and_a_second_one_does_not(tmp_path: Path) -> None:
    with running(1, None, "--drain-timeout-s", "3600") as (one,):
        one.producer.put(b"x")
        one.producer.put(b"y")
        grant = one.producer.take().headers["spillover-grant"]
        one.process.send_signal(signal.SIGTERM)
        until(lambda: one.producer.state["draining"])
        assert one.producer.tell(grant, "ack").status == 204
        assert not one.producer.state["drained"]
        status, said = one.end(signal.SIGTERM)
        assert status == 0
        assert "1 that nobody took, 0 given" in said


def test_a_store_of_another_producer_or_in_use_is_one_line(tmp_path: Path) -> None:
    with running(1, tmp_path) as (one,):
        options = ["--id", "p1", "--store", str(tmp_path / "p1")]
        done = subprocess.run([*COMMAND, *options], check=False, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--store: expected a store that no other process uses" in done.stderr
        one.end(signal.SIGTERM)
        options = ["--id", "p2", "--store", str(tmp_path / "p1")]
        done = subprocess.run([*COMMAND, *options], check=False, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--store: expected a store of producer p2, got one of p1" in done.stderr


def test_a_full_disk_is_503_and_loses_nothing(tmp_path: Path) -> None:
    """The largest file that it may write stands in for the disk."""
    limited = f"ulimit -f 400; exec {sys.executable} -m spillover queue --id p1 --store {tmp_path}"
    process = subprocess.Popen(
        ["bash", "-c", f"trap '' XFSZ; {limited} --buffers 1000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        one = Producer(json.loads(process.stdout.readline())["url"])
        kept = []
        for k in range(200):
            content = b"%d" % k * 2000
            answer = one.put(content)
            if answer.status != 201:
                assert (answer.status, answer.told["reason"]) == (503, "store_full")
                break
            kept.append(content)
        assert 0 < len(kept) < 200
        refused = call(f"{one.url}/objects", "POST", b"x" * 1_000_000)
        assert refused.told["reason"] == "store_full", "a file, this one"
        assert not list((tmp_path / "objects").glob("*"))
        assert one.state["buffered"] == len(kept)
    finally:
        process.kill()
        process.communicate()
    again = Process("--id", "p1", "--store", str(tmp_path))
    try:
        for content in kept:
            given = again.producer.take()
            assert given.body == content
            again.producer.tell(given.headers["spillover-grant"], "ack")
    finally:
        again.end(signal.SIGKILL)


def noted(store: Path, number: int) -> int:
    """How many deliveries of an object are on the disk."""
    with closing(sqlite3.connect(f"file:{store / 'queue.sqlite3'}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT deliveries FROM objects WHERE number = ?", (number,))
        (deliveries,) = rows.fetchone()
    return int(deliveries)


def test_an_object_that_kills_whoever_touches_it_is_dead_in_the_end(tmp_path: Path) -> None:
    with running(1, tmp_path, "--deliveries-max", "3", "--drain-timeout-s", "0") as (one,):
        assert one.producer.put(b"poison").status == 201
        assert one.producer.put(b"other").status == 201
        for time_of in (1, 2):
            given = one.producer.take()
            assert (given.body, given.headers["spillover-deliveries"]) == (b"poison", str(time_of))
            until(lambda count=time_of: noted(tmp_path / "p1", 1) == count)
            one.end(signal.SIGKILL)
            one.start()
        one.producer.tell(one.producer.take().headers["spillover-grant"], "extend")
        status, _ = one.end(signal.SIGTERM)
        assert status == 0
        one.start()
        (dead,) = call(f"{one.producer.url}/dead").told
        assert (dead["number"], dead["deliveries"]) == (1, 3)
        assert call(f"{one.producer.url}/dead/1").body == b"poison"
        assert one.producer.take().body == b"other"
        one.end(signal.SIGKILL)
        one.start()
        assert one.producer.state["dead"] == 1, "and that is on the disk"


# --- killed under load --------------------------------------------------------------------------


class Load:
    """Threads that produce and consume at producers that may die; what they were told."""

    def __init__(self, processes: list[Process]) -> None:
        self.processes = processes
        self.accepted: set[bytes] = set()
        self.delivered: set[bytes] = set()
        self.waits_s: list[float] = []
        self.producing = self.consuming = True
        self.threads = [threading.Thread(target=self._produce, args=(k,)) for k in range(4)]
        self.threads += [threading.Thread(target=self._consume, args=(k,)) for k in range(4)]
        for thread in self.threads:
            thread.start()

    def _produce(self, who: int) -> None:
        draws = random.Random(who)
        made = 0
        while self.producing:
            made += 1
            content = b"%d-%d-" % (who, made) + b"x" * draws.choice([10, 100, 100_000])
            process = draws.choice(self.processes)
            with suppress(*GONE):
                if process.producer.put(content, deadline_ms=2000).status == 201:
                    self.accepted.add(content)

    def _consume(self, who: int) -> None:
        draws = random.Random(100 + who)
        while self.consuming:
            process = draws.choice(self.processes)
            with suppress(*GONE):
                begun_s = time.monotonic()
                answer = process.producer.take(deadline_ms=2000, max_hops=2)
                if answer.status not in (200, 303):
                    continue
                content, base, grant = fetched(answer)
                self.waits_s.append(time.monotonic() - begun_s)
                self.delivered.add(content)
                Producer(base or process.producer.url).tell(grant, "ack")

    def settle(self) -> None:
        """Produce no more, and wait until all that was accepted has been delivered."""
        self.producing = False
        for thread in self.threads[:4]:
            thread.join()
        try:
            until(lambda: not self.accepted - self.delivered)
        finally:
            self.consuming = False
            for thread in self.threads:
                thread.join()


def test_sigkill_at_random_instants_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    draws = random.Random(SEED)
    more = ("--visibility-ms", "2000", "--deliveries-max", "1000")
    with running(2, tmp_path, *more) as processes:
        load = Load(processes)
        try:
            for _ in range(4):
                count = len(load.accepted) + draws.randrange(5, 60)
                until(lambda at_least=count: len(load.accepted) >= at_least)
                victim = draws.choice(processes)
                victim.end(signal.SIGKILL)
                victim.start()
        finally:
            load.settle()
        assert len(load.accepted) > 20
        until(lambda: all(one.producer.state["buffered"] == 0 for one in processes))
