"""The same schedule alive and in virtual time: the processes behave as the model says.

Bounds are loose, for machines that are busy with other things; how close it is on a quiet one is
measured by hand.
"""

from __future__ import annotations

import pytest

SCHEDULE = ("--workload", "bursts", "--duration-s", "12", "--seed", "1")


@pytest.mark.parametrize("policy", ["isolated", "paper"])
def test_live_runs_agree_with_virtual_time(policy, up, generate, spillover):
    """ring5 through its first two bursts: all is ok, and mean system times agree."""
    simulated = spillover(
        "sim", "overflow", "--topology", "ring5", "--policy", policy, *SCHEDULE, "--json"
    ).result()
    bed, urls = up("ring5", "--policy", policy, "--seed", "1")
    live = generate(urls, *SCHEDULE).result()
    assert bed.end() == 0
    bed.nothing_left()
    assert live["sent"] == live["outcomes"]["ok"] == simulated["requests"]
    assert sum(live["outcomes"].values()) == live["sent"]
    expected_ms = simulated["system_time_ms"]["mean"]
    tolerance = {"rel": 0.10} if policy == "isolated" else {"abs": 5.0}
    assert live["system_time_ms"]["mean"] == pytest.approx(expected_ms, **tolerance)
    if policy == "isolated":
        assert live["forwarded_share"] == simulated["forwarded_share"] == 0.0
    else:
        assert live["forwarded_share"] == pytest.approx(simulated["forwarded_share"], abs=0.1)
