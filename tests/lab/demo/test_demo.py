"""The demo of bursts: its report, what it says at its end, and options that it would not heed. The
whole command is in tests/realtime/alone."""

import re
from argparse import Namespace
from dataclasses import replace

import pytest

from spillover.cli import main
from spillover.model.ids import ClusterId
from spillover.model.statistics import summarize
from spillover.model.topology import Cluster, Link, Topology
from spillover_lab.demo import command, report
from spillover_lab.demo.display import Display
from spillover_lab.demo.figures import NARROW_PX
from spillover_lab.demo.report import report_page
from spillover_lab.demo.result import DemoResult, RunResult, Sample

pytestmark = pytest.mark.slow

A, B = ClusterId("a"), ClusterId("b")
TIMES = "\N{MULTIPLICATION SIGN}"


def load(first_ms, second_ms, hops=None):
    """An object as the load generator writes it, of these system times."""
    everything = [*first_ms, *second_ms]
    return {
        "sent": len(everything),
        "outcomes": {"ok": len(everything), "refused": 0},
        "system_time_ms": summarize(everything),
        "per_cluster": {
            A: {"system_time_ms": summarize(first_ms), "hops": hops or {}},
            B: {"system_time_ms": summarize(second_ms), "hops": {"0": 2}},
        },
        "forwarded_share": 0.25,
        "schedule_lag_ms": {"p99": 41.6, "max": 90.0},
        "kept_up": True,
    }


def run(policy, told, lengths):
    """One sample each second: these queue lengths at the first cluster, none at the other."""
    samples = [
        Sample(float(second), {A: n, B: 0}, {A: 5 / (5 + n), B: 1.0}, {A: 1.0, B: 1.0})
        for second, n in enumerate(lengths)
    ]
    return RunResult(policy, told, samples)


RESULT = DemoResult(
    topology=Topology(
        name="pair",
        clusters=(Cluster(id=A, servers=5), Cluster(id=B, servers=5)),
        links=(Link(between=(A, B), delay_ms=35),),
    ),
    seed=4711,
    time_scale=1.0,
    duration_s=8.0,
    isolated=run(
        "isolated", load([46.0, 433.0, 910.0], [46.0, 47.0]), [0, 40, 80, 60, 50, 40, 30, 0]
    ),
    networked=run(
        "paper", load([46.0, 81.0, 123.0], [46.0, 48.0], {"0": 1731, "2": 29}), [0, 4, 6, 2, 0]
    ),
    simulated={
        "isolated": load([45.0, 876.0], [45.0]), "networked": load([45.0, 111.0], [45.0])
    },
    ledgers_balanced=True,
    user_rates={A: [(0.0, 0.0), (1.0, 50.0), (3.0, 10.0)], B: [(0.0, 10.0)]},
    finished_at="2031-02-03 04:05 UTC",
)  # fmt: skip


def test_the_report_shows_figures_and_numbers_and_needs_nothing(read, monkeypatch):
    """Four figures for wide and for narrow screens; measured and simulated values; no address. Here
    those for wide ones are drawn as narrow ones."""
    monkeypatch.setattr(report, "_drawings", lambda told, draw: [draw(told, NARROW_PX)] * 2)
    page = report_page(RESULT)
    assert read(page).tags.count("figure") == 4
    assert page.count("<svg") == 8
    assert not re.findall(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page))
    assert '<td>910<small title="simulated">876</small></td>' in page
    assert f'<td>7.4{TIMES}<small title="simulated">7.9{TIMES}</small></td>' in page
    assert ">29</td>" in page
    # More than ten waiting at five servers from second 1 to second 7.
    assert (
        "<h1>Bursts that pile up for 6 s in isolated queues vanish in networked ones: "
        "mean system time 296 → 68.8 ms</h1>"
    ) in page
    assert "4711" in read(page).text


@pytest.mark.parametrize("balanced", [False, True])
def test_the_end_tells_what_came_of_it(balanced, tmp_path, capsys, monkeypatch):
    """A ledger that does not balance is a failure; the report is there in any case."""
    monkeypatch.setattr(command, "report_page", lambda result: f"<html>{result.seed}")
    page = tmp_path / "x.html"
    late = replace(RESULT.isolated, load={**RESULT.isolated.load, "kept_up": False})
    result = replace(RESULT, isolated=late, ledgers_balanced=balanced)
    options = Namespace(json=False, report=page)
    assert command._end(result, options, Display()) == (0 if balanced else 1)
    assert page.read_text() == "<html>4711"
    *_, busy, last = capsys.readouterr().err.splitlines()
    assert busy.startswith("The machine was too busy: requests left up to 42 ms late (p99). ")
    assert last.endswith(f". Open the report in a browser: {page.as_uri()}")
    assert last.startswith("every ledger balanced" if balanced else "A LEDGER DID NOT BALANCE")


@pytest.mark.parametrize("words", [("--topology", "chord5"), ("--quick",), ("--report", "x.html")])
def test_what_is_for_bursts_is_not_ignored_with_streams(words, capsys):
    assert main(["demo", "streams", *words]) == 2
    told = f"spillover: {words[0]}: expected none with streams: it is for bursts\n"
    assert capsys.readouterr() == ("", told)
