"""`spillover demo` that is interrupted, or cannot write its report."""

from __future__ import annotations


def test_a_report_that_cannot_be_written_is_told_first(spillover, tmp_path):
    """One line before anything is started."""
    demo = spillover("demo", "--quick", "--report", str(tmp_path / "not there" / "demo.html"))
    demo.look()
    assert demo.process.wait(10) == 2
    assert demo.stderr.count("\n") == 1
    assert "demo.html" in demo.stderr
    assert not demo.nodes()
