"""One more policy: its own file and a line in the registry, and everything else knows it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from spillover.policy.overflow import choosers

pytestmark = pytest.mark.processes

TOY = """
from spillover.policy.overflow.base import KEEP


def choose(own, near, eligible, weights, draw):
    shortest = KEEP
    for y in range(len(weights)):
        weights[y] = 0.0
        length = near.queue_length[y]
        if eligible[y] and length < own.queue_length:
            if shortest == KEEP or length < near.queue_length[shortest]:
                shortest = y
    if shortest != KEEP:
        weights[shortest] = 1.0
    return shortest
"""
IN_A_TREE_WITH_IT = """
import sys
import spillover.policy.overflow as overflow
overflow.__path__.insert(0, sys.argv.pop(1))
"""
IN_THE_CORE = """
import json
from random import Random
from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.model.load import LoadReport
from spillover.model.request import Request

settings = NodeSettings(cluster="a", servers=1, policy="toy")
machine = NodeMachine(settings, [("b", 0.0), ("c", 0.0), ("d", 0.0)], Random(1), 0.0)
for y, length in enumerate((3, 1, 2)):
    machine.handle(ev.ReportReceived(y, LoadReport(1, 1, 0.5, 0.5, length, 1, True, ("a",))), 0.0)
for ref in range(4):
    commands = machine.handle(ev.Arrived(ref, Request(f"r{ref}", True, None, ()), 60.0), 0.0)
print(json.dumps([type(commands[-1]).__name__, getattr(commands[-1], "neighbor", None)]))
"""
FROM_OUTSIDE = """
from spillover.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def with_toy(tmp_path):
    """Runs a script where the two files have been written; what it prints, as an object."""
    (tmp_path / "toy.py").write_text(TOY)
    registry = Path(choosers.__file__).read_text()
    imported = registry.replace("isolated, paper,", "isolated, paper, toy,")
    listed = imported.replace("\n}\n", '\n    "toy": toy.choose,\n}\n')
    assert listed.count("toy") == 3
    (tmp_path / "choosers.py").write_text(listed)

    def run(script, *arguments):
        command = [sys.executable, "-c", IN_A_TREE_WITH_IT + script, str(tmp_path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=290)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_cluster_decides_by_it(with_toy):
    """A server and two that wait: the fourth goes to c, whose queue is the shortest."""
    assert with_toy(IN_THE_CORE) == ["Forward", 1]


def test_both_simulators_decide_by_it(require, with_toy, tmp_path):
    """By its name in a topology file, and as an option beside the paper's: the same from both
    engines, and other than the paper's."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
    topology = tmp_path / "three.yaml"
    topology.write_text(
        "policy: toy\nclusters: [{id: a, servers: 2}, {id: b, servers: 2}, {id: c, servers: 2}]\n"
        "links: [{between: [a, b], delay_ms: 5}, {between: [a, c], delay_ms: 5}]\n"
    )
    ask = ["sim", "overflow", "--topology", str(topology), "--workload", "bursts"]
    ask += ["--duration-s", "10", "--json"]
    own = with_toy(FROM_OUTSIDE, *ask)
    full, fast = (
        with_toy(FROM_OUTSIDE, *ask, "--engine", engine, "--compare", "paper,toy")["policies"]
        for engine in ("full", "fast")
    )
    for result in (own, *full.values(), *fast.values()):
        for field in ("engine", "events", "requests_per_s"):
            result.pop(field)
    assert own["policy"] == "toy"
    assert own["forwarded_share"] > 0
    assert own["system_time_ms"] != full["paper"]["system_time_ms"]
    assert own == full["toy"] == fast["toy"]
    assert fast["paper"] == full["paper"]
