"""The synchronous client: threads, running loops, Ctrl-C. Nodes run in a thread of their own."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from spillover.client import Answer, Expired, InputError, Retries, Spillover, Unreachable
from support.waiting import until

LONG = {"service_ms": 60_000}
COUNT = 15
"""Of jobs that are given up."""


def threads():
    return [thread.name for thread in threading.enumerate()]


def test_all_of_it_without_a_loop(bed):
    with Spillover(bed.url) as spillover:
        answer = spillover.run({"service_ms": 3}, key="k")
        assert (answer.result, answer.id) == ({"service_ms": 3.0}, "k")
        job = spillover.submit({"service_ms": 50})
        assert job.state() == "running"
        assert job.result(5.0) == spillover.job(job.id, node=bed.url).result()
        assert spillover.submit(LONG).cancel() == "cancelled"
        with pytest.raises(Expired):
            spillover.run(LONG, deadline_s=0.05)
        assert spillover.stats.answered == 3
        assert spillover.nodes.current == bed.url
    assert "spillover-client" not in threads()


def test_it_begins_no_thread_before_it_is_used_and_closes_once():
    spillover = Spillover("http://127.0.0.1:1", retries=Retries(rounds=1))
    assert "spillover-client" not in threads()
    with pytest.raises(Unreachable):
        spillover.run(None)
    assert "spillover-client" in threads()
    spillover.close()
    spillover.close()
    assert "spillover-client" not in threads()
    with pytest.raises(RuntimeError, match="closed"):
        spillover.run(None)


def test_a_map_takes_payloads_and_hands_out_in_the_thread_of_its_user(bed):
    taken, told = [], []

    def payloads():
        for time_ms in (120, 60, 1):
            taken.append(threading.current_thread())
            yield {"service_ms": time_ms}

    def progress(now):
        told.append((threading.current_thread(), now.done))

    def of(answers):
        return [answer.result["service_ms"] for answer in answers]

    with Spillover(bed.url) as spillover:
        assert of(spillover.map(payloads(), progress=progress)) == [120, 60, 1]
        assert of(spillover.map(payloads(), ordered=False)) == [1, 60, 120]
        assert list(spillover.map([])) == []
    assert {*taken, *(thread for thread, _ in told)} == {threading.current_thread()}
    assert told[-1][1] == 3


def test_a_map_is_bounded_and_ends_what_is_under_way(bed):
    with Spillover(bed.url) as spillover:
        answers = spillover.map(iter([{"service_ms": 1}, *[LONG] * 9]), at_most=4)
        assert next(answers).result == {"service_ms": 1.0}
        assert bed.home["accepted"] <= 5
        answers.close()
        until(lambda: bed.home["running"] == 0)
        outcomes = list(
            spillover.map([{"service_ms": 1}, object(), LONG], return_errors=True, deadline_s=0.2)
        )
        assert [type(outcome) for outcome in outcomes] == [Answer, InputError, Expired]
        with pytest.raises(InputError):
            list(spillover.map([LONG, object()], ordered=False))
        until(lambda: bed.home["running"] == 0)


@pytest.mark.processes
@pytest.mark.parametrize(
    "does",
    [
        "with spillover: spillover.run(long)",
        "list(spillover.map([long] * 3))",
    ],
    ids=["run", "map, never closed"],
)
def test_ctrl_c_leaves_nothing_running(bed, does):
    """Not even where the client is never closed: it closes as Python ends."""
    script = f"""
        from spillover.client import Spillover
        long = {LONG}
        spillover = Spillover({bed.url!r})
        {does}
    """
    said = _interrupt(script, bed)
    until(lambda: bed.home["running"] == 0, what=said)
    assert bed.home["cancelled"] == bed.home["accepted"] > 0


@pytest.mark.processes
@pytest.mark.parametrize(
    "does",
    [
        "await (await client.submit(long)).result()",
        "task = asyncio.create_task(client.run(long)); await asyncio.Event().wait()",
    ],
    ids=["job", "task of its own"],
)
def test_ctrl_c_in_a_loop_leaves_nothing_running(bed, does):
    script = f"""
        import asyncio
        from spillover.client import AsyncSpillover
        long = {LONG}
        async def main():
            async with AsyncSpillover({bed.url!r}) as client:
                {does}
        asyncio.run(main())
    """
    _interrupt(script, bed)
    until(lambda: bed.home["running"] == 0)
    assert bed.home["cancelled"] == bed.home["accepted"] > 0


def _interrupt(script, bed):
    """Run it, and press Ctrl-C when its requests run at the node."""
    wanted = 3 if "(3)" in script or "* 3" in script else 1
    command = [sys.executable, "-c", "\n".join(line[8:] for line in script.splitlines())]
    with subprocess.Popen(command, stderr=subprocess.PIPE, process_group=0) as process:
        until(lambda: bed.home["running"] == wanted or process.poll() is not None)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert b"\nKeyboardInterrupt\n" in said, said.decode()
    return said.decode()


@pytest.mark.slow
def test_a_submit_that_is_given_up_at_any_moment_leaves_no_job(bed):
    """Also in the very moment in which it is accepted, which is found about every fourth time."""
    for _ in range(COUNT):
        spillover = Spillover(bed.url)
        submitting = spillover._loop_thread().begin(spillover._client.submit(LONG))
        until(lambda: bed.home["running"] == 1, every_s=0.0)
        submitting.cancel()
        spillover.__exit__(KeyboardInterrupt, None, None)
        until(lambda: bed.home["running"] == 0)
    assert bed.home["cancelled"] == COUNT


FORKING = """
import os, socket, stat, sys
from spillover.client import Spillover

def sockets():
    # TCP connections of this process.
    return sum(is_tcp(fd) for fd in range(64))

def is_tcp(fd):
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(fd)) as one:
            return one.family == socket.AF_INET
    except OSError:
        return False

spillover = Spillover(sys.argv[1])
spillover.run(None)
spillover.submit(None).result()
child = os.fork()
if child == 0:
    try:
        spillover.run(None)
    except RuntimeError as error:
        print(error, flush=True)
    with Spillover(sys.argv[1]) as own:
        print(own.run(None).cluster, flush=True)
    held = sockets()
    spillover.close()
    print("sockets closed:", held - sockets(), flush=True)
    try:
        spillover.run(None)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(spillover.submit(None).result().cluster, spillover.run(None).cluster, flush=True)
spillover.close()
"""


@pytest.mark.processes
def test_a_forked_child_is_told_to_make_its_own(bed):
    """To close the parent's there closes copies of sockets, and the parent goes on with its own."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING, bed.url],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == [
        "spillover-client: expected to be made anew after a fork",
        "a",
        "sockets closed: 2",
        "this client is closed",
        "a a",
    ]
