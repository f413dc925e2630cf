"""Producers of the distributed queue as processes: how they start and end, and what is left of what
was acknowledged when they are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

from support.ports import free_ports
from support.queue_service import Producer, fetched, until

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
