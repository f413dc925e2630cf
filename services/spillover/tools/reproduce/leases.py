"""The lease document has no figures: here is the experiment that shows its failure and its repair.

What is measured and what is claimed; drawing is in `leases_drawing`. The simulation is
`sim.leases.run`; the blog's rule is run as written, in each reading that its text allows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any

from spillover.model.lease_times import LeaseTimes
from spillover.sim.leases.run import LeaseRun, LeaseScene, run_leases
from spillover.sim.leases.world import Troubles
from spillover.tools.reproduce import leases_drawing as drawing
from spillover.tools.reproduce.figure import Claim, Effort, Figure, OnProgress

NODES = 4
PERIODS = 500
TIMES = LeaseTimes()
PERIOD_MS = TIMES.normal_lease_ms
STALL_DELAYS = 5
"""A stalled node comes up to so many held-delays late."""

SEEDS = 4
SEEDS_FULL = 20

RULES: dict[str, dict[str, str]] = {
    "guarded": {"rule": "guarded"},
    "blog": {"rule": "blog"},
    "blog, one challenge a period": {"rule": "blog", "challenges": "one"},
    "blog, waits of the sentences": {"rule": "blog", "waits": "sentences"},
    "blog, waits of the parentheses": {"rule": "blog", "waits": "parentheses"},
}

CASES: dict[str, dict[str, Any]] = {
    "16, even": {"partitions": 16, "start": "balanced"},
    "17, as even as can be": {"partitions": 17, "start": "balanced"},
    "16, all on one": {"partitions": 16, "start": "one-node"},
    "64, all on one": {"partitions": 64, "start": "one-node"},
}

SIDES = ("calm", "stalled")
CURVES = ("guarded", "blog")

TIMELINE_PERIODS = 40
SAMPLES_PER_PERIOD = 10


def _troubles(side: str) -> Troubles:
    stall_ms = STALL_DELAYS * TIMES.held_delay_ms
    return Troubles(stall_ms={0: stall_ms} if side == "stalled" else {})


def _run(seed: int, troubles: Troubles, **scene: Any) -> LeaseRun:
    merged = {"nodes": NODES, **scene}
    return run_leases(LeaseScene(troubles=troubles, **merged), seed)


def compute_moves(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes as long as the notes of the repair have it: 500 normal lease times."""
    seeds = range(seed, seed + (SEEDS_FULL if effort.full else SEEDS))
    return measure(seeds, PERIODS, on_progress)


def measure(seeds: Sequence[int], periods: int, on_progress: OnProgress) -> dict[str, Any]:
    """Measures every rule from every start, calm and with one stalled node; then the single
    questions."""
    seed = seeds[0]
    wanted = list(_wanted())
    rows = []
    curves: dict[str, dict[str, list[float]]] = {case: {} for case in CASES}
    for done, (rule, case, side) in enumerate(wanted):
        scene = {**RULES[rule], **CASES[case], "periods": periods}
        runs = [_run(s, _troubles(side), **scene) for s in seeds]
        rows.append({"rule": rule, "case": case, "side": side, **_summary(runs)})
        if rule in CURVES:
            curves[case][f"{rule}, {side}"] = [
                fmean(bisect_right(run.moves_ms, period * PERIOD_MS) for run in runs)
                for period in range(periods + 1)
            ]
        on_progress((done + 1) / (len(wanted) + 1))
    return {
        "nodes": NODES,
        "periods": periods,
        "seeds": list(seeds),
        "stall_ms": STALL_DELAYS * TIMES.held_delay_ms,
        "held_delay_ms": TIMES.held_delay_ms,
        "rows": rows,
        "curves": curves,
        "timeline_periods": TIMELINE_PERIODS,
        "timelines": {rule: _timeline(rule, seed) for rule in CURVES},
        "single_partition": _single_partition(seed, periods),
        "one_dies": {rule: _one_dies(rule, seed) for rule in CURVES},
        "messages_lost": {rule: _messages_lost(rule, seed) for rule in CURVES},
    }


def _wanted() -> Iterator[tuple[str, str, str]]:
    """The readings of the waits concern ties and lateness: the even starts show both."""
    for rule, chosen in RULES.items():
        for case, scene in CASES.items():
            if "waits" not in chosen or scene["partitions"] <= 17:
                yield from ((rule, case, side) for side in SIDES)


def _summary(runs: Sequence[LeaseRun]) -> dict[str, Any]:
    last = [run.moves_ms[-1] / PERIOD_MS if run.moves_ms else 0.0 for run in runs]
    return {
        "moves": [run.moves for run in runs],
        "moves_min": runs[0].moves_min,
        "counts": list(runs[0].counts),
        "even_at_the_end": all(max(run.counts) - min(run.counts) <= 1 for run in runs),
        "last_move_periods": last,
        "unowned_ms_max": max(run.unowned_ms_max for run in runs),
        "double_owned_ms": [run.double_owned_ms for run in runs],
    }


def _timeline(rule: str, seed: int) -> list[list[int | None]]:
    """Who ran which partition at each sample, one node stalled, from all on one."""
    scene = {**RULES[rule], **CASES["16, all on one"], "periods": TIMELINE_PERIODS}
    run = _run(seed, _troubles("stalled"), **scene)
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


def _single_partition(seed: int, periods: int) -> dict[str, int]:
    """Moves of the only partition of three nodes, nobody late, by reading of the waits."""
    scene = {"nodes": 3, "partitions": 1, "start": "empty", "periods": periods}
    return {
        rule: _run(seed, Troubles(), **scene, **chosen).moves
        for rule, chosen in RULES.items()
        if rule != "blog, one challenge a period"
    }


def _one_dies(rule: str, seed: int) -> dict[str, Any]:
    """One of four nodes dies after ten periods; its three partitions run again after so long."""
    troubles = Troubles(crash_ms={NODES - 1: 10 * PERIOD_MS})
    run = _run(seed, troubles, partitions=12, periods=40, **RULES[rule])
    return {
        "unowned_ms_max": run.unowned_ms_max,
        "moves": run.moves,
        "moves_min": run.moves_min,
        "counts": list(run.counts),
    }


def _messages_lost(rule: str, seed: int) -> dict[str, Any]:
    """A third of the messages lost, and one node stalled."""
    stall_ms = STALL_DELAYS * TIMES.held_delay_ms
    troubles = Troubles(stall_ms={0: stall_ms}, loss=1.0 / 3.0)
    periods = 100
    scene = CASES["16, all on one"]
    run = _run(seed, troubles, periods=periods, **RULES[rule], **scene)
    return {
        "partition_ms": periods * PERIOD_MS * scene["partitions"],
        "moves": run.moves,
        "moves_min": run.moves_min,
        "double_owned_ms": run.double_owned_ms,
        "double_entitled_ms": run.double_entitled_ms,
    }


# --- claims ---------------------------------------------------------------------------------------


def claim_moves(data: dict[str, Any]) -> list[Claim]:
    """Returns what the document says of itself, in good and in bad, and what the repair must do."""
    return [*_claims_that_work(data), *_claims_that_fail(data), *_claims_of_the_repair(data)]


def _row(data: dict[str, Any], rule: str, case: str, side: str) -> dict[str, Any]:
    """The measured row of a rule, a start and a side."""
    found: dict[str, Any] = next(
        row for row in data["rows"] if (row["rule"], row["case"], row["side"]) == (rule, case, side)
    )
    return found


def _told(values: Sequence[float]) -> str:
    if min(values) == max(values):
        return f"{values[0]:.0f}"
    return f"{median(values):.0f} ({min(values):.0f} .. {max(values):.0f})"


def _claims_that_work(data: dict[str, Any]) -> list[Claim]:
    newcomers = _row(data, "blog", "16, all on one", "calm")
    even = _row(data, "blog", "16, even", "calm")
    within = median(newcomers["last_move_periods"])
    dies = data["one_dies"]["blog"]["unowned_ms_max"]
    single = data["single_partition"]
    readings = [single[f"blog, waits of the {which}"] for which in ("sentences", "parentheses")]
    return [
        Claim(
            "The blog's rule, nobody late: newcomers soon have their share",
            "within the normal lease time",
            f"even after {within:.1f} normal lease times, with {_told(newcomers['moves'])} moves "
            f"where {newcomers['moves_min']} would do",
            newcomers["even_at_the_end"] and within <= 1.5,
        ),
        Claim(
            "and what is spread evenly stays where it is",
            "sticky",
            f"{_told(even['moves'])} moves in {data['periods']} lease times",
            max(even["moves"]) == 0,
        ),
        Claim(
            "A single partition stays on one computer",
            "squarely lands on one node and stays there",
            f"{max(readings)} moves if the waits are read as in the sentences of step 2, or as in "
            "their parentheses",
            max(readings) == 0,
        ),
        Claim(
            "If a computer dies its partitions are taken over",
            "after roughly the maximum lease time (180 s)",
            f"after {dies / 1000:.0f} s at the latest: the next challenge and the shutdown time "
            "suffice, unless it dies while it takes over",
            dies <= TIMES.max_lease_ms + 1.1 * PERIOD_MS,
        ),
    ]


def _claims_that_fail(data: dict[str, Any]) -> list[Claim]:
    calm, stalled = (_row(data, "blog", "16, even", side) for side in SIDES)
    one = _row(data, "blog, one challenge a period", "16, even", "stalled")
    tie = _row(data, "blog", "17, as even as can be", "calm")
    others = [
        _row(data, f"blog, waits of the {which}", "17, as even as can be", side)["moves"]
        for which in ("sentences", "parentheses")
        for side in SIDES
    ]
    lost = data["messages_lost"]["blog"]
    useless = data["periods"] / 5
    return [
        Claim(
            "The blog's rule, one computer of four late: partitions jump",
            "nodes under heavy load are too slow to hold on to their leases",
            f"{_told(stalled['moves'])} useless moves of 16 evenly spread partitions in "
            f"{data['periods']} lease times if one is up to {data['stall_ms']:.0f} ms late, "
            f"{_told(calm['moves'])} if none is; {_told(one['moves'])} if each challenges only one "
            "partition at a time",
            min(one["moves"]) > useless and max(calm["moves"]) == 0,
        ),
        Claim(
            "A second flaw: with waits of half a delay less and half a delay more, a holder of one "
            "more ties with its rival",
            "not noticed by the author",
            f"{_told(tie['moves'])} useless moves of 17 partitions though nobody is late; "
            f"{_told([*others[0], *others[2]])} with the two other readings, which have no ties, "
            f"but {_told([*others[1], *others[3]])} as soon as one is late",
            min(tie["moves"]) > useless
            and max(*others[0], *others[2]) == 0
            and min(*others[1], *others[3]) > useless,
        ),
        Claim(
            "A holder that missed a message works on beside the winner",
            "not noticed by the author",
            f"two at once for {lost['double_owned_ms'] / lost['partition_ms']:.0%} of the time, a "
            "third of the messages lost",
            lost["double_owned_ms"] > 0,
        ),
    ]


def _claims_of_the_repair(data: dict[str, Any]) -> list[Claim]:
    still = [
        moves
        for case in ("16, even", "17, as even as can be")
        for side in SIDES
        for moves in _row(data, "guarded", case, side)["moves"]
    ]
    lost, dies = data["messages_lost"]["guarded"], data["one_dies"]["guarded"]
    return [
        Claim(
            "Guarded: nothing moves that is as even as can be, whoever is late",
            "0 moves (ours)",
            f"{_told(still)} moves",
            max(still) == 0,
        ),
        _claim_of_fewest_moves(data),
        Claim(
            "Guarded: never two that are entitled to work on a partition",
            "0 s, messages lost or not (ours)",
            f"{lost['double_entitled_ms'] / 1000:.0f} s; {lost['moves']} moves of "
            f"{lost['moves_min']}",
            lost["double_entitled_ms"] == 0 and lost["moves"] == lost["moves_min"],
        ),
        Claim(
            "Guarded: the dead are replaced, and only what they had moves",
            "within maximum lease, one period and the waits (ours)",
            f"after {dies['unowned_ms_max'] / 1000:.0f} s at the latest, {dies['moves']} moves of "
            f"{dies['moves_min']}",
            dies["moves"] == dies["moves_min"]
            and dies["unowned_ms_max"] <= TIMES.max_lease_ms + 1.1 * PERIOD_MS + 1_000.0,
        ),
    ]


def _claim_of_fewest_moves(data: dict[str, Any]) -> Claim:
    told = []
    exact = True
    slowest = 0.0
    for case in ("16, all on one", "64, all on one"):
        rows = [_row(data, "guarded", case, side) for side in SIDES]
        moves = [count for row in rows for count in row["moves"]]
        fewest = rows[0]["moves_min"]
        exact = exact and set(moves) == {fewest}
        slowest = max(slowest, *(last for row in rows for last in row["last_move_periods"]))
        told.append(f"{case}: {_told(moves)} of {fewest}")
    return Claim(
        "Guarded: from all on one, exactly the fewest moves",
        "12 of 16, 48 of 64 (ours)",
        f"{'; '.join(told)}; even after {slowest:.0f} lease times at most",
        exact,
    )


FIGURES = (
    Figure(
        "leases-1",
        "Partitions that jump, and partitions that stay",
        "Four computers share out partitions of work; a move takes a partition from one to "
        "another. Above: moves so far, from four starts, by the document's rule and by the guarded "
        "one. Dashed: one computer is now and then up to half a second late with its answers. "
        "Below: who runs which of 16 partitions, all on the late computer at first; each row is a "
        "partition, each color a computer. With the document's rule the late computer keeps losing "
        "what it has and winning it back. Guarded, twelve partitions move once, and that is all.",
        compute_moves,
        claim_moves,
        drawing.draw_moves,
    ),
)
