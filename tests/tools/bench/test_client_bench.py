"""`spillover bench client`: the library beside its peers, all of them answered by one node."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BENCH = [sys.executable, "-m", "spillover", "bench", "client", "--quick", "--json", "--runs", "1"]


@pytest.mark.e2e
@pytest.mark.threes
def test_each_way_to_ask_stands_beside_both_peers(tmp_path):
    done = subprocess.run(BENCH, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["peer"] for row in rows] == ["load generator", "httpx"] * 3
    assert len({row["case"] for row in rows}) == 3
    assert all(row["value"] > 0 and row["peer_value"] > 0 for row in rows)
