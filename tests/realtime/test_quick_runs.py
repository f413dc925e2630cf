"""Each `spillover bench NAME` runs once in its quick form, as a user starts it, and prints figures.

The figures themselves are of no use here."""

import importlib.util
import json
import subprocess
import sys

import pytest

from spillover_lab.bench import catalog
from spillover_lab.bench.relays import find_program

ROW_FIELDS = {"case", "value", "unit", "runs", "peer", "peer_value", "ratio"}
OPTIONS = {
    "affinity": ("--case", "beside others, one site, load 0.8"),
    "capacity": ("--case", "a service that bears 4"),
    "client": ("--case", "AsyncSpillover.run, 1 KiB"),
    "leases": ("--case", "fenced write"),
    "membership": ("--case", "stratified from"),
    "node": ("--case", "local, 1 KiB"),
    "peers": ("--case", "bursts", "--duration-s", "2"),
    "proxy": ("--case", "CPU of a small request, local"),
    "queue": ("--case", "objects of 1 KiB"),
    "sim": ("--case", "fast engine, ring5"),
    "tokens": ("--case", "comte11 at 1.2", "--duration-s", "3", "--replicas", "1"),
}
"""The options of each benchmark that choose its shortest case with all that it measures with."""


@pytest.fixture
def run(request, require, tmp_path):
    """`run(name)` is the JSON object that the command prints, if what it needs is installed."""

    def start(name):
        if name in {"leases", "queue"}:
            request.getfixturevalue("redis_servers")
        if name in {"sim", "tokens"}:
            require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
        if name == "peers":
            require(find_program("haproxy") is not None, "haproxy is not installed")
        command = [sys.executable, "-m", "spillover", "bench", name, "--quick", "--json"]
        done = subprocess.run(
            [*command, "--runs", "1", *OPTIONS[name]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 1
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout)

    return start


@pytest.mark.parametrize("name", catalog.BENCHES)
def test_a_quick_run_prints_its_figures(run, name):
    """All rows are of the case that was asked for, and have the documented fields."""
    told = run(name)
    assert told["name"] == name
    assert told["machine"]["cores"] >= 1
    assert told["rows"]
    for row in told["rows"]:
        assert row.keys() >= ROW_FIELDS
        assert OPTIONS[name][1] in row["case"]
        assert row["value"] is not None
        if row["ratio"] is not None:
            assert row["ratio"] >= 0
    if name == "membership":
        failed = [row["value"] for row in told["rows"] if row["case"].endswith("requests failed")]
        assert failed == [0]
