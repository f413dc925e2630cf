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

import pytest

from spillover.cli import main
from support.ports import free_ports
from support.queue_service import Producer, call, fetched, until

pytestmark = pytest.mark.threes

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


LIMITS = ("--object-limit-bytes", "500", "--buffers", "7", "--visibility-ms", "9000")


def test_it_says_at_the_start_whether_objects_outlive_it(tmp_path: Path) -> None:
    for store, words in (
        (None, "objects are lost with this process: they are in memory alone, without --store"),
        (tmp_path, "objects outlive this process: they are on the disk"),
    ):
        with running(1, store, *LIMITS) as (one,):
            assert one.ready["durable"] is (store is not None)
            state = one.producer.state
            assert state["durable"] is (store is not None)
            assert (state["probe_expiry_ms"], state["visibility_ms"]) == (1000.0, 9000.0)
            assert (state["buffers"], state["limits"]["object_limit_bytes"]) == (7, 500)
            status, said = one.end(signal.SIGTERM)
            assert status == 0
            assert words in said


def test_sigterm_says_what_is_lost(tmp_path: Path) -> None:
    with running(1, None, "--drain-timeout-s", "0.2") as (one,):
        for _ in range(3):
            one.producer.put(b"x")
        one.producer.take()
        status, said = one.end(signal.SIGTERM)
        lost = "2 that nobody took, 1 given and not acknowledged, 0 dead"
        assert status == 0
        assert f"the producer ends: it waits for {lost}" in said
        assert f"the producer ends: it loses objects that were in memory: {lost}" in said


def test_sigterm_does_not_wait_for_what_is_on_the_disk(tmp_path: Path) -> None:
    with running(1, tmp_path, "--drain-timeout-s", "3600") as (one,):
        one.producer.put(b"x")
        status, said = one.end(signal.SIGTERM)
        assert status == 0
        assert "keeps 1 objects in its store" in said
        one.start()
        assert one.producer.take().body == b"x"


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--peer", "p2=http://a:1"] * 2, "--peer: expected ids that differ, got 'p2' twice"),
        (
            ["--peer", "p2=http://a:1", "--peer", "p3=http://a:1"],
            "--peer: expected urls that differ, got 'http://a:1' twice",
        ),
        (["--peer", "p2"], "--peer: expected ID=http(s)://HOST[:PORT], got 'p2'"),
        (["--buffers", "0"], "--buffers: expected a number of at least 1, got 0"),
        (["--held-limit-bytes", "-1"], "--held-limit-bytes: expected a number of at least 1"),
        (["--url", "ftp://x"], "--url: expected http(s)://HOST[:PORT], got 'ftp://x'"),
    ],
)
def test_wrong_options_are_one_line(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queue", "--id", "p1", *options]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


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


def test_one_of_several_killed_leaves_the_others_alone(tmp_path: Path) -> None:
    with running(4, tmp_path, "--visibility-ms", "2000") as processes:
        load = Load(processes)
        try:
            until(lambda: len(load.delivered) >= 30)
            victim = processes[0]
            victim.end(signal.SIGKILL)
            before, load.waits_s = len(load.delivered), []
            until(lambda: len(load.delivered) >= before + 60)
            waits_s = sorted(load.waits_s)
            assert waits_s[len(waits_s) // 2] < 1.0, "without an expiry, and without a timeout"
            victim.start()
        finally:
            load.settle()
