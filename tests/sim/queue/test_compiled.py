"""The probing simulation: repeatable, conserving, exact where theory is, and Johnson's model
within a per cent of it where the document says that they agree."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from statistics import fmean

import psutil
import pytest

from spillover.model.errors import InputError
from spillover.sim.engine.world import stream
from spillover.sim.theory.queue.chain import solve
from spillover.sim.theory.queue.system import ProbingSystem, alike, fast_and_slow


@pytest.fixture(autouse=True)
def _numba(require):
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")


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


def differences(system, objects, seed=1):
    """How far the model is from the simulation, relative, by figure; and half the interval."""
    measured = run(system, objects, seed)
    model = asdict(solve(system))
    apart = {name: model[name] / value - 1 for name, value in asdict(measured.figures).items()}
    return apart, {name: value / model[name] for name, value in asdict(measured.ci95).items()}


@pytest.mark.slow
@pytest.mark.parametrize("load", [50, 150, 200])
@pytest.mark.parametrize("max_hops", [3, 10])
def test_the_model_is_within_a_per_cent_off_load_100(load, max_hops):
    """All that is measured in time, with half of the simulation's own interval on top; probes
    within 1.5 %, since at h_max = 10 they feel most that there are 100 producers only."""
    apart, half = differences(paper(load, max_hops), 200_000)
    for name in ("wait_mean", "throughput", "consumer_utilization", "producer_utilization"):
        assert half[name] < 0.02
        assert abs(apart[name]) < 0.01 + half[name] / 2, name
    assert abs(apart["probes_mean"]) < 0.015


@pytest.mark.slow
def test_at_load_100_the_difference_is_that_of_finitely_many_producers():
    """Waits lie several per cent above the model at N = 100, and near it at N = 1000."""
    apart = {}
    for producers, objects in ((100, 150_000), (1000, 500_000)):
        system = paper(producers, 5, kinds=alike(producers, 0.01))
        waits = [run(system, objects, seed).figures.wait_mean for seed in (1, 2)]
        apart[producers] = fmean(waits) / solve(system).wait_mean - 1
    assert apart[100] > 0.06
    assert abs(apart[1000]) < 0.04


@pytest.mark.slow
@pytest.mark.parametrize(("share", "factor"), [(0.5, 2.0), (0.1, 9.0)])
@pytest.mark.parametrize("matched", [False, True])
def test_kinds_of_producers(share, factor, matched):
    """Throughput within a per cent, probed evenly or in proportion to what they make."""
    scale = 1 + share * (factor - 1)
    access = share * factor / scale if matched else None
    kinds = fast_and_slow(100, 0.01 / scale, share=share, factor=factor, access=access)
    apart, half = differences(paper(kinds=kinds), 200_000)
    assert abs(apart["throughput"]) < 0.01 + half["throughput"] / 2
    assert abs(apart["probes_mean"]) < 0.01 + half["probes_mean"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 1.0, 3.0])
def test_one_producer_and_one_consumer(share):
    """A chain of five states: the interval holds the exact utilization and throughput."""
    system = paper(1, 1, kinds=alike(1, 1.0), message_time=0.0, buffers=3, consumption_rate=share)
    measured = run(system, 200_000)
    weights = [share**-s for s in range(-1, 4)]
    used = 1 - weights[0] / sum(weights)
    for name, exact in (("consumer_utilization", used), ("throughput", share * used)):
        half = getattr(measured.ci95, name)
        assert abs(getattr(measured.figures, name) - exact) < 1.5 * half
        assert half < 0.01 * exact


def test_intervals_hold_the_truth_as_often_as_they_say():
    """40 seeds of a small system that is solved exactly: 95 % of them, give or take."""
    system = paper(1, 1, kinds=alike(1, 1.0), message_time=0.0, buffers=2, consumption_rate=1.0)
    exact = solve(system)
    held = Counter()
    for seed in range(40):
        measured = run(system, 6000, seed)
        for name, value in asdict(exact).items():
            if name not in {"probes_mean", "empty_probability"}:
                near = abs(getattr(measured.figures, name) - value)
                held[name] += near <= getattr(measured.ci95, name)
    assert min(held.values()) >= 33


def test_what_is_made_is_what_is_consumed():
    """T = N lambda U_p = M U_c mu, but for the noise of the draws."""
    measured = run(paper(150), 200_000).figures
    assert measured.throughput == pytest.approx(measured.producer_utilization, rel=0.01)
    assert measured.throughput == pytest.approx(1.5 * measured.consumer_utilization, rel=0.01)
    empty, probes = measured.empty_probability, measured.probes_mean
    assert probes == pytest.approx(sum(empty**k for k in range(3)), rel=0.01)


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
from spillover.sim.theory.queue.system import ProbingSystem, alike
system = ProbingSystem(kinds=alike(100, 0.01), consumers=100, consumption_rate=0.01,
                       message_time=1.0, buffers=5, max_hops=3)
simulate(system, 30, 1)
print("begun", flush=True)
try:
    simulate(system, 10**9, 1)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_avoiding_visited_producers_finds_an_object_sooner():
    """Three producers, all of which a request may probe."""
    system = paper(3, 3, kinds=alike(3, 0.01), message_time=0.1)
    avoiding = run(system, 60_000, avoid_visited=True).figures
    assert avoiding.wait_mean < 0.9 * run(system, 60_000).figures.wait_mean


def test_uniform_production_times_shorten_waits():
    """Figure 6: less variance, less waiting; the model is somewhat pessimistic."""
    system = paper(150, 3, kinds=alike(100, 1 / 75))
    uniform = run(system, 50_000, production_spread=1 / 3).figures
    assert uniform.wait_mean < run(system, 50_000).figures.wait_mean
    assert uniform.wait_mean < solve(system).wait_mean


@pytest.mark.parametrize(("consumers", "width"), [(100, 1), (100, 7), (37, 10), (250, 99), (3, 2)])
def test_restricted_access_is_spread_evenly(consumers, width):
    """Each consumer has so many different producers, each producer as many consumers as others."""
    from spillover.sim.queue.measuring import access_rows

    rows = access_rows(paper(consumers, producers_per_consumer=width), stream(1, "rows"))
    assert len(rows) == consumers
    assert all(len({j for j, _ in row}) == width for row in rows)
    taken = Counter(j for row in rows for j, _ in row)
    counts = [taken[j] for j in range(100)]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == consumers * width


@pytest.mark.slow
@pytest.mark.parametrize("max_hops", [1, 3, 5])
@pytest.mark.parametrize("width", [1, 2, 5, 20])
def test_restricted_access(width, max_hops):
    """The mended equations: throughput within 1.5 %, waits within a tenth, from K = 1 on."""
    system = paper(max_hops=max_hops, producers_per_consumer=width)
    apart, half = differences(system, 100_000)
    assert abs(apart["consumer_utilization"]) < 0.015 + half["consumer_utilization"] / 2
    assert abs(apart["wait_mean"]) < 0.1 + half["wait_mean"] / 2


@pytest.mark.slow
def test_fewer_producers_to_probe_cost_throughput():
    """Figure 9: little once there are more of them than hops, a lot at one."""
    throughput = {
        width: run(paper(producers_per_consumer=width), 100_000).figures.throughput
        for width in (1, 4, 10, 100)
    }
    assert sorted(throughput, key=throughput.__getitem__) == [1, 4, 10, 100]
    assert throughput[4] > 0.95 * throughput[100]


def test_batches_of_one_object_each_give_figures():
    """Some of them see no probe at all."""
    for seed in range(5):
        measured = run(paper(), 30, seed)
        assert 0 <= measured.figures.empty_probability <= 1
        assert measured.ci95.empty_probability > 0


def test_too_few_objects_are_refused():
    """There is one batch at least for each object, and a spread that leaves times positive."""
    with pytest.raises(InputError, match="objects: expected at least 30, one for each batch"):
        run(paper(), 29)
    with pytest.raises(InputError, match="production_spread: expected a share of 0 to 1, got 2"):
        run(paper(), 30, production_spread=2.0)
