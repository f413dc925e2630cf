"""`spillover bench queue`: one case, all sides measured, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BENCH = [sys.executable, "-m", "spillover", "bench", "queue", "--quick", "--json"]


@pytest.mark.e2e
@pytest.mark.threes
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
    assert len(rows) == len(told["rows"]) == 2 * 4
    for peer in ("Redis list", "Redis stream"):
        moved = rows["bytes moved between machines", "KB each", peer]
        assert moved["value"] == pytest.approx(1.024)
        assert moved["peer_value"] > 2 * 1.024
    assert all(row["value"] > 0 and row["peer_value"] > 0 for row in told["rows"])
    assert any(note.startswith("RabbitMQ is not compared: ") for note in told["notes"])
