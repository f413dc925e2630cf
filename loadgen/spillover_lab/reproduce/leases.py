"""The lease document has no figures: here is the experiment that shows its failure and its repair.

The simulation is `sim.leases.run`; the blog's rule is run as written, in each reading that its text
allows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from spillover.model.lease_times import LeaseTimes
from spillover.sim.leases.run import LeaseRun, LeaseScene, run_leases
from spillover.sim.leases.world import Troubles
from spillover_lab.reproduce.figure import (
    Document,
    Effort,
    Figure,
    Panel,
    Series,
    Statement,
    Values,
    between,
    spread,
)

DOCUMENT = Document(
    prefix="leases",
    citation="henrik.org: Algorithm for distributed load balancing of batch processing, 2015",
    heading="Partition leases: sharing out work without a leader",
    problem="A stream of work is split into partitions, and each partition is to be worked on by "
    "exactly one of several computers. Computers come, go and die, and nobody is in charge.",
    mechanism="Now and then each computer challenges the others for partitions that it does not "
    "have. Everybody waits a little, the longer the more partitions it has, and whoever writes its "
    "name into a shared store first has the partition. So the one with the least to do should win.",
    reproduced="The author warns that this does not work in practice: a busy computer answers late "
    "and loses what it has. We run the rule as written, message by message, see it fail for that "
    "very reason, and run a repaired one (ours) under the same conditions: the wait only spreads "
    "the contenders, and what the store counts decides.",
    left_open="The document has no figures, so this experiment is ours. Its formulas for the wait "
    "are each printed in two ways that do not agree: we run three readings.",
)

NODES = 4
PERIODS = 500
TIMES = LeaseTimes()
PERIOD_MS = TIMES.normal_lease_ms
STALL_MS = 5 * TIMES.held_delay_ms
"""A stalled node comes up to so much late."""
SEEDS, SEEDS_FULL = 4, 20
TIMELINE_PERIODS, SAMPLES_PER_PERIOD = 40, 10
TAKEN_OVER_WITHIN_MS = TIMES.max_lease_ms + 1.1 * PERIOD_MS

RULES: dict[str, dict[str, str]] = {
    "guarded": {"rule": "guarded"},
    "blog": {"rule": "blog"},
    "blog, one challenge a period": {"rule": "blog", "challenges": "one"},
    "blog, waits of the sentences": {"rule": "blog", "waits": "sentences"},
    "blog, waits of the parentheses": {"rule": "blog", "waits": "parentheses"},
}
READINGS = ("blog, waits of the sentences", "blog, waits of the parentheses")
EVEN, ODD = "16, even", "17, as even as can be"
ON_ONE, MANY_ON_ONE = "16, all on one", "64, all on one"
CASES: dict[str, dict[str, Any]] = {
    EVEN: {"partitions": 16, "start": "balanced"},
    ODD: {"partitions": 17, "start": "balanced"},
    ON_ONE: {"partitions": 16, "start": "one-node"},
    MANY_ON_ONE: {"partitions": 64, "start": "one-node"},
}
TROUBLES = {"calm": Troubles(), "stalled": Troubles(stall_ms={0: STALL_MS})}
CURVES = ("guarded", "blog")


def _run(rule: str, seed: int, troubles: Troubles, **scene: Any) -> LeaseRun:
    return run_leases(
        LeaseScene(troubles=troubles, **{"nodes": NODES, **RULES[rule], **scene}), seed
    )


def _compute(effort: Effort, seed: int) -> Values:
    """Every rule from every start, calm and with one stalled node; then the single questions."""
    rows: dict[str, Any] = {}
    curves: dict[str, dict[str, list[float]]] = {case: {} for case in CASES}
    for rule in RULES:
        # The readings of the waits concern ties and lateness: the even starts show both.
        for case in (EVEN, ODD) if rule in READINGS else CASES:
            for side, troubles in TROUBLES.items():
                seeds = range(seed, seed + effort.pick(SEEDS, SEEDS_FULL))
                scene = {**CASES[case], "periods": PERIODS}
                runs = [_run(rule, one, troubles, **scene) for one in seeds]
                rows[f"{rule}; {case}; {side}"] = _summary(runs)
                if rule in CURVES:
                    curves[case][f"{rule}, {side}"] = [
                        fmean(bisect_right(run.moves_ms, period * PERIOD_MS) for run in runs)
                        for period in range(PERIODS + 1)
                    ]
    single = {"nodes": 3, "partitions": 1, "start": "empty", "periods": PERIODS}
    return {
        "periods": PERIODS,
        "rows": rows,
        "curves": curves,
        "timelines": {rule: _timeline(rule, seed) for rule in CURVES},
        "single_partition": {r: _run(r, seed, Troubles(), **single).moves for r in READINGS},
        "one_dies": {rule: _one_dies(rule, seed) for rule in CURVES},
        "messages_lost": {rule: _messages_lost(rule, seed) for rule in CURVES},
    }


def _summary(runs: Sequence[LeaseRun]) -> dict[str, Any]:
    return {
        "moves": [run.moves for run in runs],
        "moves_min": runs[0].moves_min,
        "even_at_the_end": all(max(run.counts) - min(run.counts) <= 1 for run in runs),
        "last_move_periods": [max(run.moves_ms, default=0.0) / PERIOD_MS for run in runs],
    }


def _timeline(rule: str, seed: int) -> list[list[int | None]]:
    """Who ran which partition at each sample, one node stalled, from all on one."""
    run = _run(rule, seed, TROUBLES["stalled"], **CASES[ON_ONE], periods=TIMELINE_PERIODS)
    rows: list[list[int | None]] = []
    for tenures in run.tenures:
        row: list[int | None] = [None] * (TIMELINE_PERIODS * SAMPLES_PER_PERIOD)
        for tenure in tenures:
            first, last = (
                int(ms / PERIOD_MS * SAMPLES_PER_PERIOD) for ms in (tenure.from_ms, tenure.to_ms)
            )
            for place in range(first, min(last + 1, len(row))):
                row[place] = tenure.node
        rows.append(row)
    return rows


def _one_dies(rule: str, seed: int) -> dict[str, Any]:
    """One of four nodes dies after ten periods; its three partitions run again after so long."""
    troubles = Troubles(crash_ms={NODES - 1: 10 * PERIOD_MS})
    run = _run(rule, seed, troubles, partitions=12, periods=40)
    return {
        "unowned_ms_max": run.unowned_ms_max, "moves": run.moves, "moves_min": run.moves_min,
    }  # fmt: skip


def _messages_lost(rule: str, seed: int) -> dict[str, Any]:
    """A third of the messages lost, and one node stalled, for 100 periods."""
    troubles = Troubles(stall_ms={0: STALL_MS}, loss=1.0 / 3.0)
    run = _run(rule, seed, troubles, periods=100, **CASES[ON_ONE])
    return {
        "moves": run.moves,
        "moves_min": run.moves_min,
        "double_owned_share": run.double_owned_ms / (100 * PERIOD_MS * CASES[ON_ONE]["partitions"]),
        "double_entitled_ms": run.double_entitled_ms,
    }


def _panels(data: Values) -> list[Panel]:
    looks = {"calm": "-", "stalled": "--"}
    colors = {"guarded": "C0", "blog": "C1"}
    moves = []
    for case, lines in data["curves"].items():
        series = []
        for name, values in lines.items():
            rule, side = name.split(", ")
            label = name.replace("stalled", "one late").replace("calm", "nobody late")
            at = range(len(values))
            series.append(Series(at, values, label, looks[side], color=colors[rule]))
        moves.append(Panel(f"moves so far: {case}", series, "normal lease times"))
    tenths = "tenths of a normal lease time"
    return moves + [
        Panel(f"who runs which partition, one late: {rule}", x_label=tenths, rows=rows)
        for rule, rows in data["timelines"].items()
    ]


# --- what the document says of itself, in good and in bad, and what the repair must do ------------


def _row(data: Values, rule: str, case: str, side: str) -> dict[str, Any]:
    found: dict[str, Any] = data["rows"][f"{rule}; {case}; {side}"]
    return found


def _moves(data: Values, rule: str, case: str, side: str) -> list[int]:
    found: list[int] = _row(data, rule, case, side)["moves"]
    return found


def _told(values: Sequence[float]) -> str:
    middle, least, most = spread(values)
    return f"{middle:.0f}" if least == most else f"{middle:.0f} ({least:.0f} .. {most:.0f})"


def _newcomers(data: Values) -> tuple[Any, ...]:
    row = _row(data, "blog", ON_ONE, "calm")
    within = median(row["last_move_periods"])
    return within, _told(row["moves"]), row["moves_min"], row["even_at_the_end"]


def _jumps(data: Values) -> tuple[Any, ...]:
    calm, stalled = (_moves(data, "blog", EVEN, side) for side in TROUBLES)
    one = _moves(data, "blog, one challenge a period", EVEN, "stalled")
    holds = min(one) > data["periods"] / 5 and max(calm) == 0
    return _told(stalled), data["periods"], STALL_MS, _told(calm), _told(one), holds


def _ties(data: Values) -> tuple[Any, ...]:
    tie = _moves(data, "blog", ODD, "calm")
    calm, stalled = (
        [count for rule in READINGS for count in _moves(data, rule, ODD, side)] for side in TROUBLES
    )
    holds = min(*tie, *stalled) > data["periods"] / 5 and max(calm) == 0
    return _told(tie), _told(calm), _told(stalled), holds


def _still(data: Values) -> list[int]:
    moves = [_moves(data, "guarded", case, side) for case in (EVEN, ODD) for side in TROUBLES]
    return [count for own in moves for count in own]


def _fewest(data: Values) -> tuple[Any, ...]:
    told, exact, slowest = [], True, 0.0
    for case in (ON_ONE, MANY_ON_ONE):
        rows = [_row(data, "guarded", case, side) for side in TROUBLES]
        moves = [count for row in rows for count in row["moves"]]
        exact = exact and set(moves) == {rows[0]["moves_min"]}
        slowest = max(slowest, *(last for row in rows for last in row["last_move_periods"]))
        told.append(f"{case}: {_told(moves)} of {rows[0]['moves_min']}")
    return "; ".join(told), slowest, exact


def _last_is_true(*parts: Any) -> bool:
    return bool(parts[-1])


# fmt: off
FIGURES = (
    Figure(
        "leases-1", "Partitions that jump, and partitions that stay",
        "Four computers share out partitions of work; a move takes a partition from one to "
        "another. First: moves so far, from four starts, by the document's rule (blog) and by the "
        "guarded one; dashed: one computer is now and then up to half a second late. Last: who "
        "runs which of 16 partitions, all on the late computer at first; each row is a partition, "
        "each color a computer. With the document's rule the late computer keeps losing what it "
        "has and winning it back. Guarded, twelve partitions move once, and that is all.",
        _compute, _panels, (
            Statement(
                "The blog's rule, nobody late: newcomers soon have their share",
                "within the normal lease time", _newcomers,
                "even after {:.1f} normal lease times, with {} moves where {} would do",
                lambda within, _, __, even: even and within <= 1.5),
            Statement(
                "and what is spread evenly stays where it is", "sticky",
                lambda d: (_told(_moves(d, "blog", EVEN, "calm")), d["periods"]),
                "{} moves in {} lease times", lambda told, _: told == "0"),
            Statement(
                "A single partition stays on one computer",
                "squarely lands on one node and stays there",
                lambda d: max(d["single_partition"].values()),
                "{} moves if the waits are read as in the sentences of step 2, or as in their "
                "parentheses", between(0, 0)),
            Statement(
                "If a computer dies its partitions are taken over",
                "after roughly the maximum lease time (180 s)",
                lambda d: d["one_dies"]["blog"]["unowned_ms_max"] / 1000,
                "after {:.0f} s at the latest: the next challenge and the shutdown time suffice, "
                "unless it dies while it takes over", between(0, TAKEN_OVER_WITHIN_MS / 1000)),
            Statement(
                "The blog's rule, one computer of four late: partitions jump",
                "nodes under heavy load are too slow to hold on to their leases", _jumps,
                "{} useless moves of 16 evenly spread partitions in {} lease times if one is up to "
                "{:.0f} ms late, {} if none is; {} if each challenges only one partition at a time",
                _last_is_true),
            Statement(
                "A second flaw: with waits of half a delay less and half a delay more, a holder of "
                "one more ties with its rival", "not noticed by the author", _ties,
                "{} useless moves of 17 partitions though nobody is late; {} with the two other "
                "readings, which have no ties, but {} as soon as one is late", _last_is_true),
            Statement(
                "A holder that missed a message works on beside the winner",
                "not noticed by the author",
                lambda d: d["messages_lost"]["blog"]["double_owned_share"],
                "two at once for {:.0%} of the time, a third of the messages lost",
                lambda share: share > 0),
            Statement(
                "Guarded: nothing moves that is as even as can be, whoever is late",
                "0 moves (ours)", lambda d: _told(_still(d)), "{} moves", lambda told: told == "0"),
            Statement(
                "Guarded: from all on one, exactly the fewest moves",
                "12 of 16, 48 of 64 (ours)", _fewest, "{}; even after {:.0f} lease times at most",
                _last_is_true),
            Statement(
                "Guarded: never two that are entitled to work on a partition",
                "0 s, messages lost or not (ours)",
                lambda d: (d["messages_lost"]["guarded"]["double_entitled_ms"] / 1000,
                           d["messages_lost"]["guarded"]["moves"],
                           d["messages_lost"]["guarded"]["moves_min"]),
                "{:.0f} s; {} moves of {}",
                lambda double_s, moves, fewest: double_s == 0 and moves == fewest),
            Statement(
                "Guarded: the dead are replaced, and only what they had moves",
                "within maximum lease, one period and the waits (ours)",
                lambda d: (d["one_dies"]["guarded"]["unowned_ms_max"] / 1000,
                           d["one_dies"]["guarded"]["moves"],
                           d["one_dies"]["guarded"]["moves_min"]),
                "after {:.0f} s at the latest, {} moves of {}",
                lambda after_s, moves, fewest:
                    moves == fewest and after_s <= TAKEN_OVER_WITHIN_MS / 1000 + 1.0),
        ), 2),
)
# fmt: on
