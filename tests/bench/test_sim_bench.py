"""`spillover bench sim`: its cases, its federations, and a quick run of it as a command."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter

import pytest

from spillover.bench.sim import STAGES, scale

BENCH = [sys.executable, "-m", "spillover", "bench", "sim", "--quick", "--json", "--case"]


@pytest.fixture
def bench(require):
    """Runs one case: its rows and its notes."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")

    def run(case):
        done = subprocess.run(
            [*BENCH, case], capture_output=True, text=True, check=False, timeout=100
        )
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["name"] == "sim"
        return result["rows"], result["notes"]

    return run


def test_cases_have_names_of_their_own():
    """--case picks by them."""
    names = [case for stage in STAGES for case in stage.cases]
    assert len(names) == len(set(names)) == 8


@pytest.mark.parametrize("reach", scale.REACHES)
def test_circles_have_the_neighbors_they_are_named_after(reach):
    """Twice the reach for each cluster."""
    topology = scale.circulant(scale.RING, reach)
    degrees = Counter(end for link in topology.links for end in link.between)
    assert set(degrees.values()) == {2 * reach}
    assert len(degrees) == scale.RING


def test_the_engines_stand_beside_their_peers(bench):
    """A row for each library, and the compiled engine is the fastest by far even so."""
    rows, _ = bench("fast engine, ring5")
    assert [row["peer"] for row in rows] == ["SimPy", "Ciw"]
    for row in rows:
        assert row["unit"] == "requests/s"
        assert row["ratio"] == pytest.approx(row["value"] / row["peer_value"])
        assert row["ratio"] > 5


def test_the_large_run_has_a_process_of_its_own(bench):
    """Time and memory beside their limits; a quick run says that it is a small one."""
    rows, notes = bench("1 000 clusters")
    assert [(row["unit"], row["peer"], row["peer_value"]) for row in rows] == [
        ("s", "limit", 120.0),
        ("MB", "limit", 2000.0),
    ]
    assert all(row["value"] > 0 for row in rows)
    assert notes == ["1 000 clusters: quick, 200000 requests instead of 10^7"]


def test_the_cost_of_neighbors_is_told_beside_the_fewest(bench):
    rows, _ = bench("neighbors")
    assert [row["case"] for row in rows] == list(scale.NEIGHBORS)[1:]
    assert {row["peer"] for row in rows} == {"2 neighbors"}
    assert all(row["value"] > 0 for row in rows)
