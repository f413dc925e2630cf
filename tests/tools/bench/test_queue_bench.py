"""`spillover bench queue`: one case of each kind, all sides measured, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from spillover.live.queue.store import ObjectStore
from spillover.model.errors import RunError
from spillover.tools.bench.catalog import run_bench
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.queue import killed, waits
from spillover.tools.bench.queue.rabbitmq import why_not

BENCH = [sys.executable, "-m", "spillover", "bench", "queue", "--quick", "--json"]


@pytest.mark.e2e
@pytest.mark.threes
@pytest.mark.usefixtures("redis_servers")
def test_objects_go_through_all(tmp_path):
    command = [*BENCH, "--case", "objects of 1 KiB"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    rows = {
        (row["case"].rpartition(": ")[2], row["unit"], row["peer"]): row for row in told["rows"]
    }
    peers = ["Redis list", "Redis stream", *([] if why_not() else ["RabbitMQ"])]
    assert len(rows) == len(told["rows"]) == len(peers) * 4
    for peer in peers:
        moved = rows["bytes moved between machines", "KB each", peer]
        assert moved["value"] == pytest.approx(1.024)
        assert moved["peer_value"] > 2 * 1.024
    assert all(row["value"] > 0 and row["peer_value"] > 0 for row in told["rows"])
    assert any(note.startswith("whoever produces is on its producer's") for note in told["notes"])
    left_out = any(note.startswith("RabbitMQ is not compared: ") for note in told["notes"])
    assert left_out == (why_not() is not None)


@pytest.mark.e2e
@pytest.mark.threes
def test_waits_are_beside_the_simulator_and_the_model(monkeypatch):
    """Of four producers and as many consumers, of which each may ask three."""
    for name, count in {"PRODUCERS": 4, "CONSUMERS": 4, "WATCHED": 3}.items():
        monkeypatch.setattr(waits, name, count)
    case = "load 150 %, at most 3 probes"
    lines = []
    told = run_bench("queue", BenchPlan(quick=True, runs=2, case=case), lines.append)
    assert lines == [f"{case}: run 1 of 2", f"{case}: run 2 of 2"]
    rows = {(row.case.removeprefix(f"{case}: "), row.peer): row for row in told.rows}
    peers = (waits.PAIRED, waits.SIMULATED, waits.MODEL)
    what = ("wait for an object", "probes of a request")
    by_probes = {(f"{what[0]}, {kind}", waits.PAIRED) for kind, *_ in waits.BY_PROBES}
    assert set(rows) - by_probes == {  # in so short a time hardly any is seen often enough
        *((one, peer) for one in what for peer in peers),
        *((leg, None) for leg in (*waits.LEGS, waits.AT_DOOR)),
    }
    probes = rows[what[1], waits.SIMULATED]
    assert 1.0 < probes.value <= 3.0
    assert probes.half_width > 0
    assert rows[what[1], waits.MODEL].peer_value == pytest.approx(probes.peer_value, rel=0.2)
    paired = rows[what[1], waits.PAIRED]
    assert paired.value == probes.value
    assert 1.0 < paired.peer_value <= 3.0
    assert rows["take, and object", None].value > 0
    notes = "\n".join(told.notes)
    assert "all runs count together" in notes
    assert f"beside {waits.PAIRED!r} the half-width is that of the difference" in notes


@pytest.mark.e2e
@pytest.mark.threes
def test_one_of_four_producers_is_killed_and_nothing_is_lost(monkeypatch):
    """It holds objects then, and others go on."""
    for name in ("PRODUCERS", "CONSUMERS"):
        monkeypatch.setattr(killed, name, 4)
    told = run_bench("queue", BenchPlan(quick=True, runs=1, case="killed"), lambda _: None)
    assert [(row.case, row.unit, row.peer) for row in told.rows] == [
        (killed.GIVEN, "per s", killed.BEFORE),
        (killed.WAITED, "ms", killed.BEFORE),
        (killed.LONGEST, "ms", killed.BEFORE),
    ]
    assert told.rows[2].value >= told.rows[1].value
    for row in told.rows:
        assert row.value > 0
        assert row.peer_value > 0


def test_an_object_that_the_killed_producer_has_lost_is_told(tmp_path):
    seen = killed._Seen(accepted={b"p1 1", b"p1 2", b"p1 3", b"p2 1"}, settled={b"p1 1"})
    store = ObjectStore(tmp_path, killed.DEAD, "test")
    store.recover()
    store.put(2, "text/plain", b"p1 2").result(30.0)
    store.close()
    with pytest.raises(RunError, match="1 objects that the killed producer had accepted are lost"):
        killed._check_store(tmp_path, seen)
    seen.settled.add(b"p1 3")
    killed._check_store(tmp_path, seen)
    assert killed._missing(seen) == {b"p2 1"}
