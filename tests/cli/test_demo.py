"""What the demo says at its end, and of options that it would not heed."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from spillover.cli import demo, main
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from spillover.tools.demo.display import Display
from spillover.tools.demo.model import DemoResult, RunResult
from support.declared import read

TIMES = ("mean", "p50", "p90", "p95", "p99", "max", "min", "std")


def load(first_ms, *, ok=100, kept_up=True):
    """As the load generator tells of 100 requests."""
    times = {name: first_ms * (1 + at) for at, name in enumerate(TIMES)}
    return {
        "sent": 100, "outcomes": {"ok": ok, "refused": 98 - ok if ok < 98 else 0, "lost": 100 - ok},
        "system_time_ms": times, "per_cluster": {"a": {"system_time_ms": times}},
        "schedule_lag_ms": {"p99": 41.6, "max": 90.0}, "kept_up": kept_up,
    }  # fmt: skip


RESULT = DemoResult(
    topology=Topology(name="one", clusters=(Cluster(id=ClusterId("a"), servers=5),)),
    seed=7,
    time_scale=2.0,
    duration_s=8.0,
    isolated=RunResult("isolated", load(400.0), []),
    networked=RunResult("adaptive", load(100.0), []),
    simulated={"isolated": load(600.0), "networked": load(200.0)},
    ledgers_balanced=True,
    user_rates={},
    finished_at="2031-02-03 04:05 UTC",
)


def test_the_object_has_both_runs_and_how_much_faster_one_is():
    told = demo._as_json(RESULT, Path("x.html"))
    assert told["speedup"]["mean"] == pytest.approx(4.0)
    assert told["simulated"]["speedup"]["mean"] == pytest.approx(3.0)
    assert (told["isolated"], told["networked"]) == (load(400.0), load(100.0))
    assert (told["simulated"]["isolated"], told["ledgers_balanced"]) == (load(600.0), True)
    more = {"report": "x.html", "topology": "one", "policy": "adaptive", "seed": 7}
    assert more.items() <= told.items()
    assert told["time_scale"] == 2.0


def test_the_end_tells_what_went_wrong_and_where_the_report_is(capsys, tmp_path):
    """Which figures to trust less, what did not end well, and whether nothing was lost."""
    page = tmp_path / "x.html"
    at = f"Open the report in a browser: {page.as_uri()}"
    demo._tell_end(RESULT, page, Display())
    assert capsys.readouterr().err.splitlines() == [f"every ledger balanced throughout. {at}"]
    beside = replace(RESULT, simulated=RESULT.simulated | {"adaptive": load(150.0)})
    demo._tell_end(beside, page, Display())
    assert (
        capsys.readouterr()
        .err.splitlines()[0]
        .startswith("The default policy, adaptive, would have a mean of 150 ms and a p99 of ")
    )
    late = replace(RESULT.isolated, load=load(400.0, kept_up=False))
    lossy = replace(RESULT.networked, load=load(100.0, ok=95))
    worse = replace(RESULT, isolated=late, networked=lossy, ledgers_balanced=False)
    demo._tell_end(worse, page, Display())
    assert capsys.readouterr().err.splitlines() == [
        (
            "The machine was too busy: requests left up to 42 ms late (p99). "
            "Trust the figures less, or stretch time with --time-scale 2."
        ),
        "adaptive: 5 requests did not end ok: refused: 3, lost: 5",
        f"A LEDGER DID NOT BALANCE: this is a bug in Spillover. {at}",
    ]


@pytest.mark.parametrize(
    "words",
    [
        *(("--topology", "chord5"), ("--policy", "adaptive"), ("--quick",)),
        *(("--time-scale", "2"), ("--report", "x.html")),
    ],
)
def test_what_is_for_bursts_is_not_ignored_with_streams(words, capsys):
    assert main(["demo", "streams", *words]) == 2
    told = f"spillover: {words[0]}: expected none with streams: it is for bursts\n"
    assert capsys.readouterr() == ("", told)


def test_a_demo_is_as_it_was_asked_for():
    """One burst if it shall be quick, else one at each cluster."""
    plan = demo._plan_of(Namespace(**read(["demo"])))
    assert (plan.topology.name, plan.source, plan.policy) == ("ring5", "ring5", "paper")
    assert (plan.seed, plan.time_scale) == (1, 1.0)
    words = "--topology chord5 --policy adaptive --seed 3 --quick --time-scale 2"
    quick = demo._plan_of(Namespace(**read(["demo", *words.split()])))
    assert (quick.topology.name, quick.source, quick.policy) == ("chord5", "chord5", "adaptive")
    assert (quick.seed, quick.time_scale, quick.duration_s) == (3, 2.0, 7.0)
    assert plan.duration_s > 30.0


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("balanced", [False, True])
def test_a_ledger_that_does_not_balance_is_a_failure(balanced, as_json, tmp_path, capsys):
    """What came of it is told, and the report is there, in any case."""
    page = tmp_path / "x.html"
    result = replace(RESULT, ledgers_balanced=balanced)
    options = Namespace(json=as_json, report=page)
    assert demo._end(result, options, Display()) == (0 if balanced else 1)
    out, err = capsys.readouterr()
    assert "<html" in page.read_text()
    assert err.endswith(f"Open the report in a browser: {page.as_uri()}\n")
    assert ("users" in err) is not as_json
    assert (json.loads(out)["ledgers_balanced"] is balanced) if as_json else (out == "")
