"""`spillover demo`: the main job, as a newcomer runs it."""

import re

import pytest

from spillover_lab.report.formats import milliseconds

SUMMARY = {"mean", "p50", "p99", "max", "min", "std"}
WITHIN_S = 60.0
"""About 20 s on a quiet machine."""
LOOK_S = 0.1
"""A look at all processes takes a core a while, which the nodes want."""


def test_quick_shows_that_bursts_vanish(spillover, tmp_path, until):
    """One object with all of its fields, balanced ledgers, a real speed-up, and a report that
    has the same figures; nothing is left of it. At half the time scale everything takes half as
    long: the schedule, the service, virtual time, the closing table."""
    report = tmp_path / "demo.html"
    demo = spillover("demo", "--quick", "--time-scale", "0.5", "--json", "--report", str(report))

    def has_ended():
        demo.look()
        return demo.process.poll() is not None

    until(has_ended, WITHIN_S, every_s=LOOK_S)
    result = demo.result()
    demo.nothing_left()
    assert not demo.temporary_directories()
    assert len(demo.nodes()) == 0
    assert result.keys() >= {
        "isolated", "networked", "speedup", "simulated", "ledgers_balanced", "report",
    }  # fmt: skip
    assert result["time_scale"] == 0.5
    assert result["ledgers_balanced"] is True
    assert result["report"] == str(report)
    for name in ("isolated", "networked"):
        live, simulated = result[name], result["simulated"][name]
        assert live["duration_s"] == 3.5
        assert live["sent"] == live["outcomes"]["ok"] == simulated["requests"] > 1000
        assert sorted(live["per_cluster"]) == ["a", "b", "c", "d", "e"]
        live_ms, expected_ms = live["system_time_ms"], simulated["system_time_ms"]
        assert live_ms.keys() == SUMMARY
        assert live_ms["min"] == pytest.approx(23.0, abs=1.0)
        assert expected_ms["min"] == pytest.approx(23.0, abs=0.01)
        assert live_ms["mean"] == pytest.approx(expected_ms["mean"], rel=0.25)
    for field in ("mean", "max", "min", "std"):
        times = [result[name]["system_time_ms"][field] for name in ("isolated", "networked")]
        assert result["speedup"][field] == pytest.approx(times[0] / times[1])
    assert result["speedup"]["max"] > 4.0
    text = re.sub(r"<[^>]+>", " ", report.read_text(encoding="utf-8"))
    for name in ("isolated", "networked"):
        assert milliseconds(result[name]["system_time_ms"]["max"]) in text
    assert f"{result['speedup']['max']:.1f}" in text
