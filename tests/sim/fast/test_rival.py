"""One more policy: its own file and a line in the registry, and everything else knows it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spillover.policy.overflow import choosers

IS_LONG = bool({"SPILLOVER_SOAK_S", "SPILLOVER_REQUIRE_ALL"} & os.environ.keys())

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not IS_LONG, reason="time to compile all rules anew (`make soak`)"),
]

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
from spillover.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def with_toy(tmp_path):
    """Runs the command where the two files have been written; what it prints, as an object."""
    (tmp_path / "toy.py").write_text(TOY)
    registry = Path(choosers.__file__).read_text()
    imported = registry.replace("isolated, paper,", "isolated, paper, toy,")
    listed = imported.replace("\n}\n", '\n    "toy": toy.choose,\n}\n')
    assert listed.count("toy") == 3
    (tmp_path / "choosers.py").write_text(listed)

    def run(*arguments):
        command = [sys.executable, "-c", IN_A_TREE_WITH_IT, str(tmp_path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=290)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_both_simulators_decide_by_it(numba, with_toy, tmp_path):
    """By its name in a topology file, and as an option beside the paper's: the same from both
    engines, and other than the paper's."""
    topology = tmp_path / "three.yaml"
    topology.write_text(
        "policy: toy\nclusters: [{id: a, servers: 2}, {id: b, servers: 2}, {id: c, servers: 2}]\n"
        "links: [{between: [a, b], delay_ms: 5}, {between: [a, c], delay_ms: 5}]\n"
    )
    ask = ["sim", "overflow", "--topology", str(topology), "--workload", "bursts"]
    ask += ["--duration-s", "10", "--json"]
    own = with_toy(*ask)
    fast = with_toy(*ask, "--engine", "fast", "--compare", "paper,toy")["policies"]
    for result in (own, *fast.values()):
        for field in ("engine", "events", "requests_per_s"):
            result.pop(field)
    assert own["policy"] == "toy"
    assert own["forwarded_share"] > 0
    assert own["system_time_ms"] != fast["paper"]["system_time_ms"]
    assert own == fast["toy"]
