"""Unlike servers alive and in virtual time, on the same schedule: two sites with pools, and bursts
of one type at one after the other.

15 % is asked of the mean system time, by type and in all.
"""

import pytest

from support import unlike_sites

KINDS = ("embed", "llm", "search")
SCALE = 0.6
"""Of all times but the link's: the run takes 15 s instead of 24."""


def test_live_pools_agree_with_virtual_time(tmp_path, up, generate, spillover):
    """All is ok; each type takes as long as simulated, and as many go to the other site."""
    trace = tmp_path / "typed.csv"
    unlike_sites.write_trace(trace, unlike_sites.schedule(1, scale=SCALE))
    topology, schedule = str(unlike_sites.TWO_SITES), ("--trace", str(trace))
    simulated = spillover("sim", "overflow", "--topology", topology, *schedule, "--json").result()
    bed, urls = up(topology, "--seed", "1")
    live = generate(urls, *schedule).result()
    assert bed.end() == 0
    bed.nothing_left()
    assert live["sent"] == live["outcomes"]["ok"] == simulated["requests"]
    for kind in KINDS:
        mean_ms = live["per_type"][kind]["system_time_ms"]["mean"]
        assert mean_ms == pytest.approx(
            simulated["per_type"][kind]["system_time_ms"]["mean"], rel=0.15
        ), kind
    expected_ms = simulated["system_time_ms"]["mean"]
    assert live["system_time_ms"]["mean"] == pytest.approx(expected_ms, rel=0.15)
    assert live["forwarded_share"] == pytest.approx(simulated["forwarded_share"], abs=0.1)
    assert simulated["forwarded_share"] > 0.05
