"""`spillover bench queue`: one case, both sides measured, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BENCH = [sys.executable, "-m", "spillover", "bench", "queue", "--quick", "--json"]


@pytest.mark.e2e
@pytest.mark.threes
def test_objects_go_through_both(tmp_path):
    command = [*BENCH, "--case", "objects of 1 KiB"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    by_unit = {(row["case"].rpartition(": ")[2], row["unit"]): row for row in rows}
    assert len(by_unit) == 4
    moved = by_unit["bytes moved between machines", "KB each"]
    assert moved["value"] == pytest.approx(1.024)
    assert moved["peer_value"] > 2 * 1.024
    assert all(row["value"] > 0 and row["peer"] == "Redis list" for row in rows)
