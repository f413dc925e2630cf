"""The probing simulation: repeatable, heard to be interrupted, and exact where theory is."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import psutil
import pytest

from spillover.model.errors import InputError
from spillover.sim.queue.system import ProbingSystem, alike

pytestmark = pytest.mark.usefixtures("numba")


def paper(consumers=100, max_hops=3, **changes):
    """The system of section 4.1.1."""
    system = ProbingSystem(
        kinds=alike(100, 0.01),
        consumers=consumers,
        consumption_rate=0.01,
        message_time=1.0,
        buffers=5,
        max_hops=max_hops,
    )
    return replace(system, **changes)


def run(system, objects=100_000, seed=1, **options):
    from spillover.sim.queue.compiled import simulate

    return simulate(system, objects, seed, **options)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 3.0])
def test_one_producer_and_one_consumer(share):
    """A chain of five states: the interval holds the exact utilization and throughput."""
    system = paper(1, 1, kinds=alike(1, 1.0), message_time=0.0, buffers=3, consumption_rate=share)
    measured = run(system, 100_000)
    weights = [share**-s for s in range(-1, 4)]
    used = 1 - weights[0] / sum(weights)
    for name, exact in (("consumer_utilization", used), ("throughput", share * used)):
        half = getattr(measured.ci95, name)
        assert abs(getattr(measured.figures, name) - exact) < 1.5 * half
        assert half < 0.02 * exact


def test_the_same_seed_gives_the_same_numbers():
    """Another seed gives others; what is asked of a run in between changes nothing."""
    system = paper(producers_per_consumer=4)
    first = run(system, 3000)
    told = []
    run(paper(3), 500, 7, avoid_visited=True, on_progress=told.append)
    assert len(told) == 30
    assert told[-1] == 500
    assert run(system, 3000) == first
    assert run(system, 3000, 2) != first


def test_pauses_change_nothing(monkeypatch):
    """Between two of them Ctrl-C is heard, and progress told, of what is measured alone."""
    from spillover.sim.queue import compiled as probing

    whole = run(paper(), 6000)
    monkeypatch.setattr(probing, "EVENTS_AT_ONCE", 101)
    told = []
    assert run(paper(), 6000, on_progress=told.append) == whole
    assert len(told) > 100
    assert told == sorted(told)
    assert told[-1] == 6000


def busy_for(process, cpu_s):
    """Until it has used so much more CPU time: it is in the middle of its work."""
    process_times = psutil.Process(process.pid)
    until_s = sum(process_times.cpu_times()[:2]) + cpu_s
    limit_s = time.monotonic() + 20
    while sum(process_times.cpu_times()[:2]) < until_s:
        assert time.monotonic() < limit_s
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)


@pytest.mark.processes
def test_ctrl_c_is_heard_at_once():
    """In a run of minutes, of which the first is warm-up."""
    command = [sys.executable, "-c", LONG_RUN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            busy_for(process, 0.5)
            sent_s = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            assert time.monotonic() - sent_s < 5
        finally:
            process.kill()


LONG_RUN = """
import sys
from spillover.sim.queue.compiled import simulate
from spillover.sim.queue.system import ProbingSystem, alike
system = ProbingSystem(kinds=alike(100, 0.01), consumers=100, consumption_rate=0.01,
                       message_time=1.0, buffers=5, max_hops=3)
simulate(system, 30, 1)
print("begun", flush=True)
try:
    simulate(system, 10**9, 1)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_too_few_objects_are_refused():
    """There is one batch at least for each object, and a spread that leaves times positive."""
    with pytest.raises(InputError, match="objects: expected at least 30, one for each batch"):
        run(paper(), 29)
    with pytest.raises(InputError, match="production_spread: expected a share of 0 to 1, got 2"):
        run(paper(), 30, production_spread=2.0)
