"""Members for code that never awaits, on a real Redis: life, errors, interruptions, processes."""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from spillover.client import InputError, LeaseGroupThread, LeaseTimes, RunError, current_lease
from support import waiting

TIMES = LeaseTimes(
    normal_lease_ms=300,
    max_lease_ms=1500,
    max_shutdown_ms=300,
    min_grab_ms=100,
    held_delay_ms=5,
)


PARTITIONS = 4
LIMIT_S = 60.0


def works(partition, epoch, stop_event):
    stop_event.wait()


until = partial(waiting.until, limit_s=LIMIT_S)


def member(url, group, node="a", handler=works, **settings):
    settings = {"partitions": PARTITIONS, "times": TIMES, "seed": 1, **settings}
    return LeaseGroupThread(url, group, node=node, handler=handler, **settings)


def test_a_member_without_await(redis_server, redis_servers):
    group = redis_servers.new_name()
    leases = {}

    async def notes(partition, epoch, stop_event):
        leases[partition] = current_lease().epoch
        await stop_event.wait_async()

    with member(redis_server.url, group) as a:
        assert a.state == "member"
        until(lambda: len(a.held) == PARTITIONS)
        with member(redis_server.url, group, "b", notes) as b:
            until(lambda: (len(a.held), len(b.held)) == (2, 2))
            assert until(lambda: leases == b.held)
            assert not b.wait(0.01)
        assert b.held == {}
        assert b.state == "finished"
        until(lambda: len(a.held) == PARTITIONS)
        a.drain()
        assert a.wait(0)
    assert a.held == {}


def test_errors_are_raised_in_the_callers_thread(redis_server, redis_servers, tmp_path):
    group = redis_servers.new_name()
    with pytest.raises(InputError, match="partitions: expected at least 1"):
        member(redis_server.url, group, partitions=0)
    with member(redis_server.url, group):
        with pytest.raises(InputError, match=f"partitions: expected {PARTITIONS}, as the group"):
            member(redis_server.url, group, "b", partitions=5).__enter__()
        with (
            member(redis_server.url, group) as again,
            pytest.raises(RunError, match="another member with the id a is alive"),
        ):
            again.wait(LIMIT_S)
    password = "x"  # noqa: S105
    with (
        redis_servers.running(tmp_path, "--requirepass", password, password=password) as server,
        pytest.raises(InputError, match=r"--redis: .*password"),
    ):
        member(server.url, group).__enter__()


SPAWNED = """
import multiprocessing, sys, threading
from spillover.client import LeaseGroupThread, LeaseTimes

def works(partition, epoch, stop_event):
    stop_event.wait()

def member(url, group, node):
    times = LeaseTimes(
        normal_lease_ms=300, max_lease_ms=900, max_shutdown_ms=300, min_grab_ms=100,
        held_delay_ms=5,
    )
    return LeaseGroupThread(url, group, node=node, partitions=4, handler=works, times=times)

def hold(url, group):
    with member(url, group, "a") as a:
        a.wait()

def until(held, count):
    while len(held()) != count:
        threading.Event().wait(0.01)
    print(count, flush=True)

if __name__ == "__main__":
    spawned = multiprocessing.get_context("spawn").Process(target=hold, args=sys.argv[1:])
    with member(*sys.argv[1:], "b") as b:
        until(lambda: b.held, 4)  # else, where both are slow to start, it never holds them all
        spawned.start()
        until(lambda: b.held, 2)
        spawned.kill()
        until(lambda: b.held, 4)
"""


def test_a_member_in_a_spawned_process(redis_server, redis_servers, tmp_path):
    """Renewals are a process of their own there, too; killed, its partitions are free soon."""
    script = tmp_path / "spawns.py"
    script.write_text(SPAWNED, encoding="utf-8")
    command = [sys.executable, script, redis_server.url, redis_servers.new_name()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stderr  # it may tell of renewals that a busy machine held up
    assert run.stdout.split() == ["4", "2", "4"]


WITHOUT_AN_END = """
import sys
from spillover.client import LeaseGroupThread
def works(partition, epoch, stop_event):
    stop_event.wait()
def tell(line):
    print(line["event"], flush=True)
print("begins", flush=True)
with LeaseGroupThread(sys.argv[1], sys.argv[2], node="a", partitions=1, handler=works,
                      on_event=tell) as member:
    member.wait()
"""


def test_control_c(redis_server, redis_servers):
    url = redis_server.url
    command = [sys.executable, "-c", WITHOUT_AN_END, url, redis_servers.new_name()]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    with process:
        try:
            told = []
            while "acquired" not in told:
                told.append(process.stdout.readline().strip())
                assert told[-1], "it ended"
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in errors
    assert "released" in rest


GOES_ON = """
import sys, threading
from spillover.client import LeaseGroupThread
def works(partition, epoch, stop_event):
    stop_event.wait()
def tell(line):
    print(line["event"], flush=True)
try:
    LeaseGroupThread(sys.argv[1], "g", node="a", partitions=1, handler=works,
                     on_event=tell).__enter__()
except KeyboardInterrupt:
    print("goes on", flush=True)
for thread in threading.enumerate():
    if thread.name == "lease-member":
        thread.join()
print("gone", flush=True)
"""


def test_who_goes_on_after_control_c_does_not_go_on_entering(redis_servers):
    """As a notebook does: else it would be a member as soon as Redis is there."""
    url = f"redis://127.0.0.1:{redis_servers.free_port()}/0"
    command = [sys.executable, "-c", GOES_ON, url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout.readline() == "redis_down\n"
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert rest.splitlines()[-2:] == ["goes on", "gone"]
    assert process.returncode == 0
