"""What the report of a demo draws and says of its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillover.model.topology import Cluster, Link, Topology
from spillover.tools.demo import figures
from spillover.tools.demo.model import DemoResult, RunResult, Sample
from spillover.tools.demo.report import (
    _doubts,
    _facts,
    _headline,
    _hops_legend,
    _tiles,
    _topology_words,
)
from spillover.tools.report.drawing import color
from support.drawn import seen

IDS = ("a", "b")
TIMES = "\N{MULTIPLICATION SIGN}"
ARROW = "\N{RIGHTWARDS ARROW}"


def summary(mean, least=10.0, most=100.0, std=5.0):
    return {"mean": mean, "min": least, "max": most, "std": std}


def load(mean, *, hops=None, **more):
    return {
        "sent": 10, "outcomes": {"ok": 10, "refused": 0}, "system_time_ms": summary(mean),
        "per_cluster": {
            name: {"system_time_ms": summary(mean), "hops": (hops or {}).get(name, {"0": 5})}
            for name in IDS
        },
        "schedule_lag_ms": {"p99": 1.25, "max": 3.5}, "kept_up": True, **more,
    }  # fmt: skip


def samples(*lengths):
    return [
        Sample(
            float(second), {"a": length, "b": 0}, {"a": 0.5, "b": 1.0}, {"a": 0.75, "b": 1.0},
            {"a": 0, "b": 0},
        )
        for second, length in enumerate(lengths)
    ]  # fmt: skip


def result(
    isolated=200.0,
    networked=100.0,
    *,
    alone=(0, 30, 30, 30, 30, 0),
    near=(0, 12, 0, 0, 0, 0),
    hops=None,
):
    return DemoResult(
        topology=Topology(
            name="pair",
            clusters=tuple(Cluster(id=name, servers=5) for name in IDS),
            links=(Link(between=IDS, delay_ms=35.0),),
        ),
        seed=1,
        time_scale=1.0,
        duration_s=5.0,
        isolated=RunResult("isolated", load(isolated), samples(*alone)),
        networked=RunResult("paper", load(networked, hops=hops), samples(*near)),
        simulated={},
        ledgers_balanced=True,
        user_rates={"a": [(0.0, 0.0), (1.0, 50.0), (3.0, 10.0)], "b": [(0.0, 10.0)]},
        finished_at="now",
    )


@pytest.fixture
def axes(monkeypatch):
    """`axes(draw, result)`: what a figure has on its axes, its label and its size."""
    from matplotlib.figure import Figure

    told = {}

    def keep(name, label, size_px, draw):
        figure = Figure(layout="constrained")
        draw(figure)
        told.update(
            name=name, label=label, size_px=size_px, axes=[seen(one) for one in figure.axes]
        )
        return "<svg>"

    monkeypatch.setattr(figures, "svg", keep)

    def drawn(draw, of, width_px=860):
        assert draw(of, width_px) == "<svg>"
        assert str(width_px) in told["name"]
        assert len(told["label"]) > 20
        return told["axes"]

    return drawn


def values(row, curve):
    return [y for _, y in list(row["lines"].values())[curve]]


def test_queue_lengths_are_lines_of_both_runs(axes):
    rates, alone, near, magnified = axes(figures.queue_lengths_figure, result())
    assert list(rates["lines"].values()) == [
        [[0.0, 0.0], [1.0, 50.0], [3.0, 10.0], [5.0, 10.0]], [[0.0, 10.0], [5.0, 10.0]],
    ]  # fmt: skip
    assert values(alone, 0) == [0, 30, 30, 30, 30, 0]
    assert values(near, 0) == values(magnified, 0) == [0, 12, 0, 0, 0, 0]
    assert values(alone, 1) == values(near, 1) == [0] * 6
    assert alone["limits"][1] == near["limits"][1] != magnified["limits"][1]
    assert alone["limits"][1][0] == 0.0
    assert alone["limits"][1][1] > 30.0
    assert magnified["limits"][0] == (0.0, 5.0)
    assert [row["title"] for row in (rates, alone, near, magnified)] == [
        "Users arriving per second", "Requests waiting: isolated queues",
        "Requests waiting: networked queues, same scale",
        "Requests waiting: networked queues, magnified",
    ]  # fmt: skip
    assert magnified["labels"][0] == "time, s"
    # Names stand at the peaks: in the middle of what is a step.
    assert rates["texts"] == [("a", (2.0, 50.0)), ("b", (2.5, 10.0))]
    assert alone["texts"] == [("a", (1.0, 30.0)), ("b", (0.0, 0.0))]
    assert near["texts"] == magnified["texts"] == []
    (quiet, *_) = axes(figures.queue_lengths_figure, replace(result(), user_rates={}))[:1]
    assert quiet["limits"][1] == (0.0, 1.0)


def test_willingness_is_strong_and_that_of_neighbors_pale(axes):
    first, second = axes(figures.acceptance_figure, result())
    assert [values(first, 0), values(first, 1)] == [[0.75] * 6, [0.5] * 6]
    assert [values(second, 0), values(second, 1)] == [[1.0] * 6] * 2
    assert list(first["colors"].values()) == [color("neighborhood"), color("accept")]
    assert (first["labels"][1], second["labels"]) == ("a", ("time, s", "b"))
    assert first["limits"] == ((0.0, 5.0), (0.0, 1.05))
    assert first["ticks"][0] == 0.0


def test_system_times_are_ranges_and_their_ratios_bars(axes):
    times, factors = axes(figures.system_times_figure, result())
    lines = list(times["lines"].values())
    at = -0.2
    assert lines[:2] == [[[at, 10.0], [at, 205.0]], [[at, 205.0], [at, 205.0]]]
    assert lines[2] == [[-0.26, 100.0], [-0.14, 100.0]]
    assert lines[3] == [[-0.28, 200.0], [-0.12, 200.0]]
    assert {line[0][0] for line in lines[0::4]} == {-0.2, 0.8, 0.2, 1.2}
    assert (times["scales"][1], factors["scales"][1]) == ("log", "linear")
    assert times["names"] == factors["names"] == ["a", "b"]
    assert times["labels"][0] == "user population"
    bars = [bar for group in factors["bars"].values() for bar in group]
    assert bars, "speed-ups"
    shown = [(text, round(x, 6), y) for text, (x, y) in factors["texts"]]
    assert shown[:4] == [
        (f"{ratio:.1f}", pytest.approx(place), ratio)
        for ratio, place in zip((2.0, 1.0, 1.0, 1.0), (-0.3, -0.1, 0.1, 0.3), strict=True)
    ]
    assert len(shown) == 8
    narrow = axes(figures.system_times_figure, result(), 200)[1]
    assert narrow["texts"] == []
    assert factors["title"].startswith("Speed-up: ")


def test_times_that_are_not_known_are_left_out(axes):
    of = result()
    for key in ("mean", "min", "max", "std"):
        del of.isolated.load["per_cluster"]["a"]["system_time_ms"][key]
        times, _ = axes(figures.system_times_figure, of)
        places = {round(line[0][0]) if len(line) else None for line in times["lines"].values()}
        firsts = [line[0][0] for line in list(times["lines"].values())[0::4]]
        assert -0.2 not in firsts
        assert 0.8 in firsts
        assert places == {0, 1}
        of.isolated.load["per_cluster"]["a"]["system_time_ms"][key] = 50.0


def test_forwards_are_stacked_shares(axes):
    """In percent; all that were forwarded six times or more are one."""
    hops = {"a": {"0": 50, "1": 30, "2": 20}, "b": {"0": 4, "6": 1, "8": 5}}
    (row,) = axes(figures.forwards_figure, result(hops=hops))
    groups = [bar for group in row["bars"].values() for bar in group]
    assert groups[-2:] == [(0.0, 50.0, 0.0), (1.0, 0.0, 60.0)]
    assert row["title"] == "Share of the requests that were forwarded, %"
    assert row["limits"][1] == (0.0, pytest.approx(64.8))
    assert figures._forwarded_share(result(hops=hops).networked, "a", 1, 6) == 0.3
    assert figures._forwarded_share(result(hops=hops).networked, "b", 6, 6) == 0.6
    assert figures._forwarded_share(result(hops=hops).networked, "b", 6, 8) == 0.1
    none = result(hops={"a": {}, "b": {}}).networked
    assert figures._forwarded_share(none, "a", 1, 6) == 0.0


# --- words ----------------------------------------------------------------------------------------


def test_the_headline_promises_what_happened():
    """Bursts vanish if queues pile up for a quarter of the time at most; 4 s here."""
    means = f"200 {ARROW} 100 ms"
    vanish = "Bursts that pile up for 4 s in isolated queues vanish in networked ones: "
    assert _headline(result()) == f"{vanish}mean system time {means}"
    shorten = f"Networked queues shorten the mean system time: {means}"
    assert _headline(result(near=(0, 12, 12, 0, 0, 0))) == shorten
    assert _headline(result(alone=(0,) * 6, near=(0,) * 6)) == shorten
    assert _headline(result(119.0)).startswith("Isolated and networked queues: mean system time ")
    assert _headline(result(120.0)).startswith("Bursts that pile up")


def test_tiles_are_of_both_runs():
    assert _tiles(result()) == [
        ("200", "100 ms", f"mean system time, speed-up 2.0{TIMES}"),
        ("100", "100 ms", f"longest system time, speed-up 1.0{TIMES}"),
        ("30", "12", "requests in the longest queue"),
        ("4.0", "1.0 s", "longest time with more than two waiting for each server"),
    ]


def test_doubts_are_told_by_run():
    assert _doubts(result()) == []
    of = result()
    of.isolated.load["kept_up"] = False
    of.networked.load["outcomes"] = {"ok": 3, "refused": 2, "failed": 0, "expired": 1}
    late, unanswered, ledgers = _doubts(replace(of, ledgers_balanced=False))
    assert "in the isolated run" in late
    assert unanswered == (
        "Not every request of the networked run was answered: 2 refused, 1 expired."
    )
    assert "ledgers do not balance" in ledgers


def test_facts_are_those_of_the_run():
    of = result()
    of.networked.load.update(kept_up=False, sent=12)
    facts = _facts(of)
    assert facts["requests"] == "10 of 10 answered and 10 of 12 answered"
    assert facts["load generator"] == (
        "isolated kept up, behind its schedule by 1.25 ms at p99 and 3.50 ms at most; "
        "networked did not keep up, behind its schedule by 1.25 ms at p99 and 3.50 ms at most"
    )
    of.networked.load.clear()
    assert _facts(of)["requests"] == "10 of 10 answered and 0 of 0 answered"
    assert facts["policy"] == "isolated, then paper"
    assert facts["time scale"] == "1 (real time)"
    assert facts["duration"] == "5 s per run"
    assert facts["ledgers"] == "balanced"
    twice = _facts(replace(of, time_scale=2.0, ledgers_balanced=False))
    assert twice["time scale"].startswith("2 (every duration")
    assert twice["ledgers"] == "not balanced"


def test_links_are_told_with_their_ways():
    pair = result()
    assert _topology_words(pair) == "pair: 2 clusters, 1 link with 35 ms one way"
    clusters = (*pair.topology.clusters, Cluster(id="c", servers=1))
    links = (*pair.topology.links, Link(between=("b", "c"), delay_ms=5.0))
    three = replace(pair.topology, clusters=clusters, links=links)
    assert _topology_words(replace(pair, topology=three)) == (
        "pair: 3 clusters, 2 links with 5 to 35 ms one way"
    )
    alone = replace(pair.topology, links=())
    assert _topology_words(replace(pair, topology=alone)) == "pair: 2 clusters, 0 links"


def test_hops_have_a_color_each_up_to_six():
    assert _hops_legend(0) == [("hops-1", f"1{TIMES}")]
    assert _hops_legend(6)[-1] == ("hops-6", f"6{TIMES}")
    assert _hops_legend(7)[-1] == ("hops-6", f"6{TIMES} or more")
    assert len(_hops_legend(7)) == 6
