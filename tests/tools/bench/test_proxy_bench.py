"""`spillover bench proxy`: both ends of it, and one case with all ways measured."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import psutil
import pytest

from spillover.live.http.client import HttpClient
from spillover.tools.bench.catalog import run_bench
from spillover.tools.bench.foreign import find_program
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.proxy import STAGES
from spillover.tools.bench.proxy.readers import Asked, Counted, Left, Opened, Readers, Unread
from spillover.tools.bench.proxy.ways import HAPROXY, NGINX, relays, running_service

pytestmark = pytest.mark.threes

BENCH = [sys.executable, "-m", "spillover", "bench", "proxy", "--quick", "--json"]


def test_the_ends_tell_what_came_and_who_left():
    """Straight to the service: what is counted is what was sent, and all of those who leave are
    known there, quiet ones too."""

    async def main():
        async with running_service() as service:
            with Readers() as readers:
                told = {"url": service.url, "streams": 10, "size_bytes": 100}
                await readers.do(Opened(period_ms=10.0, **told))
                arrived = await readers.do(Counted(duration_s=0.5))
                assert arrived.events == pytest.approx(10 * arrived.took_s / 0.01, rel=0.2)
                assert 0.0 < arrived.p50_ms <= arrived.p99_ms
                asked = {"url": service.url, "rate_per_s": 100.0, "size_bytes": 100}
                took_ms = await readers.do(Asked(duration_s=0.1, **asked))
                assert len(took_ms) == 10
                assert took_ms == sorted(took_ms)
                await readers.do(Opened(period_ms=60_000.0, **told))
                await readers.do(Unread(url=service.url, answers=2, size_bytes=1 << 30))
                left = await readers.do(Left(every_s=0.0))
                assert len(left) == 20
                lost = {}
                while not left.keys() <= lost.keys():
                    lost |= await service.lost()
                assert all(lost[number] > at for number, at in left.items())

    asyncio.run(asyncio.wait_for(main(), 10.0))


@pytest.mark.e2e
@pytest.mark.parametrize(("name", "program"), [(NGINX, "nginx"), (HAPROXY, "haproxy")])
def test_relays_are_what_they_are_called(require, name, program):
    """As many as there are hops, and one more; what is asked goes through all of them."""
    require(find_program(program), f"{program} on the PATH")

    async def main():
        async with running_service() as service, relays(name, service, hops=1) as way:
            client = HttpClient(way.url)
            answer = await client.request("GET", "/", timeout_s=10.0)
            await client.close()
            return [psutil.Process(pid).name() for pid in way.pids], answer.status

    assert asyncio.run(main()) == ([program, program], 200)


@pytest.mark.e2e
def test_streams_over_a_hop_are_beside_relays(tmp_path):
    """Two nodes beside two of each relay; whoever looks for one case gets that alone."""
    command = [*BENCH, "--case", "CPU per chunk, one hop"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {row["case"] for row in told["rows"]} == {"CPU per chunk, one hop"}
    peers = {row["peer"] for row in told["rows"]} - {None}
    missing = {note.split(" ")[0] for note in told["notes"] if "is not installed" in note}
    assert peers | missing >= {"HAProxy", "nginx"}
    assert not peers & missing
    assert all(0.0 < row["value"] < 1e4 for row in told["rows"])


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("case", "unit", "peer", "most"),
    [
        ("memory of an idle stream, local", "KiB", None, 1e4),
        ("CPU of a small request, local", "us", "POST /requests", 1e6),
    ],
)
def test_memory_and_small_requests_are_measured(case, unit, peer, most):
    """The one of nodes alone where it has to be quick, the other beside the same work posted."""
    told = run_bench("proxy", BenchPlan(quick=True, runs=1, case=case), lambda _: None)
    row = next(row for row in told.rows if row.peer == peer)
    assert {one.case for one in told.rows} == {case}
    assert (row.unit, len(row.values)) == (unit, 1)
    assert 0.0 < row.value < most


def test_cases_have_names_of_their_own():
    """--case picks by them."""
    names = [case for stage in STAGES for case in stage.cases]
    assert len(names) == len(set(names))
