"""`spillover demo` that is interrupted, or cannot write its report."""

from __future__ import annotations

import signal


def test_interrupted_in_the_middle(spillover, tmp_path, until):
    """Status 130, no traceback, nothing left, no report."""
    report = tmp_path / "demo.html"
    demo = spillover("demo", "--quick", "--report", str(report))
    until(lambda: "isolated queues: 0 of 7 s" in demo.stderr or demo.process.poll(), 30.0)
    assert len(demo.nodes()) == 5
    assert demo.end(signal.SIGINT) == 130
    demo.nothing_left()
    assert not demo.temporary_directories()
    assert not report.exists()
    assert "Traceback" not in demo.stderr
    assert demo.stdout == ""


def test_a_report_that_cannot_be_written_is_told_first(spillover, tmp_path):
    """One line before anything is started."""
    demo = spillover("demo", "--quick", "--report", str(tmp_path / "not there" / "demo.html"))
    demo.look()
    assert demo.process.wait(10) == 2
    assert demo.stderr.count("\n") == 1
    assert "demo.html" in demo.stderr
    assert not demo.nodes()
