"""The report: complete, self-contained, true to its numbers, and whole when values are missing."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.statistics import summarize
from spillover.model.topology import Cluster, Link, Topology
from spillover.tools.demo.model import DemoResult, RunResult, Sample
from spillover.tools.demo.report import report_page
from spillover.tools.demo.speedup import speedups
from spillover.tools.report.formats import MISSING

pytestmark = [pytest.mark.meanwhile, pytest.mark.slow]

A, B = ClusterId("a"), ClusterId("b")
TIMES = "\N{MULTIPLICATION SIGN}"


def load(times_ms: dict[str, list[float]], hops: dict[str, dict[str, int]]) -> dict[str, Any]:
    """An object as the load generator writes it, of these system times."""
    everything = [time_ms for times in times_ms.values() for time_ms in times]
    return {
        "sent": len(everything),
        "outcomes": {"ok": len(everything), "refused": 0},
        "system_time_ms": summarize(everything),
        "per_cluster": {
            name: {"system_time_ms": summarize(times), "hops": hops[name]}
            for name, times in times_ms.items()
        },
        "forwarded_share": 0.25,
        "schedule_lag_ms": {"p99": 1.25, "max": 3.5},
        "kept_up": True,
    }


def samples(lengths: list[int], ids: tuple[str, str]) -> list[Sample]:
    """One sample each second: these queue lengths at the first cluster, none at the other."""
    return [
        Sample(
            time_s=float(second),
            queue_length={ids[0]: length, ids[1]: 0},
            accept_probability={ids[0]: 5 / (5 + length), ids[1]: 1.0},
            neighborhood_accept_probability=dict.fromkeys(ids, 1.0),
            forwards=dict.fromkeys(ids, 0),
        )
        for second, length in enumerate(lengths)
    ]


def small_result(ids: tuple[str, str] = (A, B)) -> DemoResult:
    """Two clusters, the first hit by a burst that forwarding takes away."""
    first, second = (ClusterId(name) for name in ids)
    isolated = load(
        {first: [46.0, 433.0, 910.0], second: [46.0, 47.0]}, {first: {"0": 3}, second: {"0": 2}}
    )
    networked = load(
        {first: [46.0, 81.0, 123.0], second: [46.0, 48.0]},
        {first: {"0": 1731, "2": 29}, second: {"0": 2}},
    )
    return DemoResult(
        topology=Topology(
            name="pair",
            clusters=(Cluster(id=first, servers=5), Cluster(id=second, servers=5)),
            links=(Link(between=(first, second), delay_ms=35),),
        ),
        seed=4711,
        time_scale=1.0,
        duration_s=8.0,
        isolated=RunResult("isolated", isolated, samples([0, 40, 80, 60, 50, 40, 30, 0], ids)),
        networked=RunResult("paper", networked, samples([0, 4, 6, 2, 0, 0, 0, 0], ids)),
        simulated={
            "isolated": load({first: [45.0, 876.0], second: [45.0]}, {first: {}, second: {}}),
            "networked": load({first: [45.0, 111.0], second: [45.0]}, {first: {}, second: {}}),
        },
        ledgers_balanced=True,
        user_rates={first: [(0.0, 0.0), (1.0, 50.0), (3.0, 10.0)], second: [(0.0, 10.0)]},
        finished_at="2031-02-03 04:05 UTC",
    )


@pytest.fixture(scope="module")
def page() -> str:
    return report_page(small_result())


def test_report_shows_every_figure_for_wide_and_narrow_screens(page: str, read: Any) -> None:
    """Four figures, each drawn twice, each with a label for those who do not see it."""
    assert read(page).tags.count("figure") == 4
    assert page.count("<svg") == 8
    assert len(re.findall(r'<svg[^>]*role="img" aria-label="[^"]+"', page)) == 8


def test_report_needs_nothing_from_elsewhere(page: str) -> None:
    """No address, no script, nothing loaded: the file can be mailed."""
    assert not re.findall(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page))
    assert not re.findall(r"<(script|link|img|iframe)\b|@import|url\((?!#)", page)


def test_ids_in_the_page_are_unique(page: str, read: Any) -> None:
    """Several drawings in one page do not take each other's clip paths."""
    ids = read(page).ids
    assert len(ids) == len(set(ids))


def test_every_color_of_a_drawing_follows_the_theme(page: str) -> None:
    """No drawing brings a color of its own, and each variable has a value in both themes."""
    used = set(re.findall(r"var\((--[\w-]+)\)", page)) - {"--chip", "--heat", "--drawn-width"}
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert not re.findall(r"(?:fill|stroke): #", drawings)
    light, dark = page.split("prefers-color-scheme: dark")
    assert [name for name in used if f"{name}:" not in light] == []
    assert [name for name in used if f"{name}:" not in dark] == []


def test_tables_hold_measured_and_simulated_values(page: str) -> None:
    """System times, their speed-ups and the counts of forwards stand in the tables."""
    assert '<td>910<small title="simulated">876</small></td>' in page
    assert '<td>123<small title="simulated">111</small></td>' in page
    # 910 / 123 measured and 876 / 111 simulated.
    assert f'<td>7.4{TIMES}<small title="simulated">7.9{TIMES}</small></td>' in page
    assert ">1731</td><td></td>" in page
    assert ">29</td>" in page


def test_headline_says_what_was_gained(page: str) -> None:
    """The headline: how long queues piled up, and the mean system time before and after."""
    heading = re.search(r"<h1>(.*?)</h1>", page)
    assert heading is not None
    # More than ten waiting at five servers from second 1 to second 7.
    assert heading[1] == (
        "Bursts that pile up for 6 s in isolated queues vanish in networked ones: "
        "mean system time 296 → 68.8 ms"
    )


def test_headline_does_not_promise_what_did_not_happen() -> None:
    """Where networked queues gain nothing, the headline only tells the two means."""
    result = small_result()
    page = report_page(replace(result, networked=result.isolated))
    assert "<h1>Isolated and networked queues: mean system time 296 → 296 ms</h1>" in page


def test_footer_tells_how_the_run_was_made(page: str, read: Any) -> None:
    """Seed, date, topology, policies, lag of the generator and the ledgers are told."""
    text = read(page).text
    for fact in (
        "4711",
        "2031-02-03 04:05 UTC",
        "pair: 2 clusters, 1 link with 35 ms one way",
        "isolated, then paper",
        "1.25 ms at p99",
        "balanced",
    ):
        assert fact in text


def test_names_are_escaped(read: Any) -> None:
    """A topology's name that looks like HTML or mathematics appears as what it is."""
    result = small_result()
    name = "<i>'pair' $y$"
    page = report_page(replace(result, topology=replace(result.topology, name=name)))
    assert "<i>" not in page
    assert name in read(page).text


def test_populations_without_requests_leave_gaps(read: Any) -> None:
    """A population that sent nothing, a run without samples and a missing simulation are gaps."""
    nothing = load({A: [], B: []}, {A: {}, B: {}})
    result = replace(
        small_result(),
        isolated=RunResult("isolated", nothing, []),
        networked=RunResult("paper", {}, []),
        simulated={},
        user_rates={},
    )
    page = report_page(result)
    assert read(page).tags.count("svg") == 8
    assert f'<td>{MISSING}<small title="simulated">{MISSING}</small></td>' in page


def test_doubts_about_the_run_are_told_at_the_top() -> None:
    """A generator that fell behind, unanswered requests and odd ledgers are not hidden."""
    result = small_result()
    poor = {**result.networked.load, "kept_up": False, "outcomes": {"ok": 3, "refused": 2}}
    page = report_page(
        replace(result, networked=RunResult("paper", poor, []), ledgers_balanced=False)
    )
    assert page.count('class="warning"') == 3
    assert "2 refused" in page


def test_missing_matplotlib_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra `report` the user reads how to get it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'spillover\[report\]'"):
        report_page(small_result())


def test_speedup_is_isolated_over_networked() -> None:
    """Each statistic is divided; missing values and a zero divisor give none."""
    isolated = {"mean": 259.0, "max": 2257.0, "min": 46.0, "std": None}
    networked = {"mean": 57.0, "max": 0.0, "min": 46.0, "std": 3.0}
    assert speedups(isolated, networked) == {
        "mean": pytest.approx(4.54, abs=0.01),
        "max": None,
        "min": 1.0,
        "std": None,
    }
    assert speedups({}, {}) == dict.fromkeys(("mean", "max", "min", "std"))
