"""Figures 2, 3 and 4 of Shraer & Reed: how even clients stay while servers come and go.

"Load-Balancing Clients-Server Connections During Membership Change", Evaluation. The rules are in
`policy.membership`, the clients in `sim.membership.rebalancing`; here are the document's experiment
and what it says of it. The document shows one run; here are many, each with servers drawn anew.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillover.sim.engine.world import stream
from spillover.sim.membership.rebalancing import Step, rebalance, reconfigurations
from spillover.tools.reproduce.figure import Claim, Effort, Figure, OnProgress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

CLIENTS = 1000
SERVERS = tuple(f"s{number}" for number in range(1, 10))
EVENTS = ("start", "1 removed", "2 removed", "1 removed,\n3 added", "1 added")
RUNS, RUNS_FULL = 200, 2000

_EXPECTED_MOVES = (1000 / 9, 250.0, 375.0, 1000 / 9)
"""What the rules give: the clients of those that go, or what the new servers have to get."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to choose servers, as it is run and as it is called on the page."""

    label: str
    rule: str
    start: str = "random"
    """The document's clients begin with the first of a shuffled list."""
    virtual_nodes: int = 1


_BASELINE = (Rule("baseline", "baseline"),)
_CONSISTENT = tuple(
    Rule(f"consistent hashing, k = {k}", "consistent-hash", virtual_nodes=k) for k in (1, 5, 20)
)
_PROBABILISTIC = (
    Rule("probabilistic, start as clients come", "probabilistic"),
    Rule("probabilistic, balanced start", "probabilistic", start="balanced"),
    Rule("stratified (ours)", "stratified", start="balanced"),
)


def _compute(
    rules: Sequence[Rule], effort: Effort, seed: int, on_progress: OnProgress
) -> dict[str, Any]:
    count = RUNS_FULL if effort.full else RUNS
    measured = {}
    for number, rule in enumerate(rules):
        runs = []
        for run in range(count):
            runs.append(_one_run(rule, f"{seed}/{run}"))
            on_progress((number + (run + 1) / count) / len(rules))
        measured[rule.label] = _summary(runs)
    return {"clients": CLIENTS, "runs": count, "events": list(EVENTS), "rules": measured}


def _one_run(rule: Rule, name: str) -> list[dict[str, float]]:
    """What is looked at after each event, the start among them."""
    seed = stream(0, name).getrandbits(48)
    lists = reconfigurations(SERVERS, seed)
    steps = rebalance(
        CLIENTS,
        # A first change that changes nothing shows the start.
        [lists[0], *lists],
        rule=rule.rule,
        start=rule.start,
        virtual_nodes=rule.virtual_nodes,
        seed=seed,
    )
    previous = steps[0]
    seen = []
    for step in steps:
        seen.append(_looked_at(previous, step))
        previous = step
    return seen


def _looked_at(before: Step, after: Step) -> dict[str, float]:
    gone = set(before.servers) - set(after.servers)
    added = set(after.servers) - set(before.servers)
    figures = after.as_dict()
    return {
        "most": max(after.clients.values()),
        "fewest": min(after.clients.values()),
        "max_over_mean": figures["max_over_mean"],
        "min_over_mean": figures["min_over_mean"],
        "moved": after.moved,
        "moved_min": after.moved_min,
        "left_behind": sum(before.clients[server] for server in gone),
        "clients_per_new": sum(after.clients[s] for s in added) / len(added) if added else 0.0,
        "servers": len(after.servers),
    }


def _summary(runs: list[list[dict[str, float]]]) -> list[dict[str, Any]]:
    """For each event: of everything looked at the mean, its standard error and the range."""
    summary = []
    for number in range(len(EVENTS)):
        fields = {}
        for name in runs[0][number]:
            values = sorted(run[number][name] for run in runs)
            fields[name] = {
                "mean": statistics.fmean(values),
                "error": statistics.stdev(values) / len(values) ** 0.5,
                "p05": values[len(values) // 20],
                "p95": values[-1 - len(values) // 20],
                "min": values[0],
                "max": values[-1],
            }
        only_needed = all(
            run[number]["moved"] == run[number]["left_behind"]
            + (0 if run[number]["left_behind"] else run[number]["clients_per_new"])
            for run in runs
        )  # fmt: skip
        summary.append({**fields, "only_those_of_the_change_moved": only_needed})
    return summary


def _mean(events: Sequence[Mapping[str, Any]], number: int, name: str) -> float:
    value: float = events[number][name]["mean"]
    return value


def _baseline_claims(values: dict[str, Any]) -> list[Claim]:
    events = values["rules"]["baseline"]
    most = [_mean(events, number, "max_over_mean") for number in range(len(EVENTS))]
    new = _mean(events, 3, "clients_per_new")
    error = events[3]["clients_per_new"]["error"]
    last = events[4]["moved"]["max"], events[4]["clients_per_new"]["max"]
    return [
        Claim(
            "Removals leave the load balanced",
            "balanced well in steps 1 and 2",
            f"the fullest server has {most[1]:.2f} and {most[2]:.2f} times the mean, "
            f"at the start {most[0]:.2f}",
            most[2] < 1.2,
        ),
        Claim(
            "When one of 6 servers goes and three come, each of the 8 gets an equal part of its "
            "clients, and the new ones nothing else",
            "21 each on expectation, beside about 166 at each old one",
            f"{new:.1f} at a new server, where {CLIENTS / 8:.0f} would be even",
            abs(new - CLIENTS / 48) < 4 * error,
        ),
        Claim(
            "Nobody moves to the server that is added last",
            "no clients migrate to it",
            f"{last[0]:.0f} moved, {last[1]:.0f} on it, in all {values['runs']} runs",
            last == (0, 0),
        ),
    ]


def _consistent_claims(values: dict[str, Any]) -> list[Claim]:
    rules = values["rules"]
    worst = [
        statistics.fmean(_mean(events, number, "max_over_mean") for number in range(len(EVENTS)))
        for events in rules.values()
    ]
    told = ", ".join(f"{value:.2f}" for value in worst)
    limited = all(
        events[number]["only_those_of_the_change_moved"]
        for events in rules.values()
        for number in (1, 2, 4)
    )
    return [
        Claim(
            "More points on the circle for each server balance better",
            "higher values of k achieve better load balancing",
            f"fullest server over the mean, for k = 1, 5, 20: {told}",
            worst[0] > worst[1] > worst[2],
        ),
        Claim(
            "For as few servers as here even k = 20 is not even enough",
            "not high enough to achieve reasonable load balancing",
            f"with k = 20 the fullest server has {worst[2]:.2f} times the mean; clients that "
            "choose at random give about 1.13",
            worst[2] > 1.2,
        ),
        Claim(
            "Only clients of a server that goes move, and only to a server that comes",
            "only the clients that are associated with it",
            f"{'true' if limited else 'not true'} of steps 1, 2 and 4 in all runs",
            limited,
        ),
    ]


def _probabilistic_claims(values: dict[str, Any]) -> list[Claim]:
    coins, balanced, ours = (values["rules"][rule.label] for rule in _PROBABILISTIC)
    new = [_mean(coins, number, "clients_per_new") for number in (3, 4)]
    errors = [coins[number]["clients_per_new"]["error"] for number in (3, 4)]
    share = [CLIENTS / 8, CLIENTS / 9]
    moved = [_mean(coins, number, "moved") for number in (1, 2, 3, 4)]
    moved_errors = [coins[number]["moved"]["error"] for number in (1, 2, 3, 4)]
    most = max(_mean(coins, number, "max_over_mean") for number in range(len(EVENTS)))
    fewest = min(_mean(coins, number, "min_over_mean") for number in range(len(EVENTS)))
    return [
        Claim(
            "Every server can expect the same number of clients, new ones too",
            f"{share[0]:.1f} at a new server after step 3, {share[1]:.1f} after step 4",
            f"{new[0]:.1f} and {new[1]:.1f}",
            all(abs(new[i] - share[i]) < 4 * errors[i] for i in (0, 1)),
        ),
        Claim(
            "Only as many clients move as an even result needs",
            "proportional to the change: " + ", ".join(f"{m:.0f}" for m in _EXPECTED_MOVES),
            "in the four steps " + ", ".join(f"{m:.1f}" for m in moved),
            all(abs(moved[i] - _EXPECTED_MOVES[i]) < 4 * moved_errors[i] + 1e-9 for i in range(4)),
        ),
        Claim(
            "The fullest and the emptiest server differ little",
            "very close to optimal",
            f"between {fewest:.2f} and {most:.2f} times the mean: no worse than clients that "
            "choose at random, and no better",
            most < 1.2,
        ),
        *_claims_of_ours(balanced, ours, values["runs"]),
    ]


def _claims_of_ours(
    balanced: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]], runs: int
) -> list[Claim]:
    """What the document does not say: that coins lose an even start, and that there is a remedy."""
    drift = [_mean(balanced, number, "max_over_mean") for number in (0, 4)]
    evens = [CLIENTS / event["servers"]["max"] for event in ours]
    spread = max(
        abs(event[name][end] - even)
        for event, even in zip(ours, evens, strict=True)
        for name, end in (("most", "max"), ("fewest", "min"))
    )
    extra = max(abs(event["moved"]["mean"] - event["moved_min"]["mean"]) for event in ours)
    return [
        Claim(
            "Not in the document: a start that is exactly even does not stay so, as each client "
            "tosses its own coin",
            "(the rules keep evenness in expectation)",
            f"fullest over mean: {drift[0]:.2f} at the start, {drift[1]:.2f} after step 4",
            drift[1] > drift[0] + 0.02,
        ),
        Claim(
            "Not in the document: our stratified rule moves as few and stays even",
            "(ours)",
            f"never more than {spread:.1f} clients from even in {runs} runs; on average "
            f"within {extra:.1f} of the least possible number of moves",
            spread <= 5 and extra < 2,
        ),
    ]


def _draw(values: dict[str, Any], canvas: Canvas) -> None:
    rules = values["rules"]
    if len(rules) > 1:
        canvas.set_size_inches(9.6, 4.0)
    panels = canvas.subplots(1, len(rules), sharey=True, squeeze=False)[0]
    for number, (axes, (label, events)) in enumerate(zip(panels, rules.items(), strict=True)):
        _panel(axes, events)
        axes.set_title(label)
        if number == 0:
            axes.set_ylabel("clients of a server / mean of all servers")
    canvas.supxlabel("servers: at the start, then after each event", fontsize="medium")
    panels[0].set_ylim(bottom=0.0)
    panels[-1].legend(loc="best")


def _panel(axes: Axes, events: Sequence[Mapping[str, Any]]) -> None:
    places = range(len(events))
    for color, name, words in (
        ("C1", "max_over_mean", "fullest server"),
        ("C0", "min_over_mean", "emptiest server"),
    ):
        low, high = ([event[name][field] for event in events] for field in ("p05", "p95"))
        axes.fill_between(places, low, high, color=color, alpha=0.25, linewidth=0)
        means = [event[name]["mean"] for event in events]
        axes.plot(places, means, color=color, marker="o", label=words)
    axes.axhline(1.0, color="C5", linewidth=1.0, linestyle="--", label="even")
    servers = [f"{event['servers']['mean']:.0f}" for event in events]
    axes.set_xticks(places, servers)


def _figure(
    name: str,
    title: str,
    explanation: str,
    rules: Sequence[Rule],
    claims: Callable[[dict[str, Any]], list[Claim]],
) -> Figure:
    def compute(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
        return _compute(rules, effort, seed, on_progress)

    return Figure(name, title, explanation, compute, claims, _draw)


_HOW_TO_READ = (
    "The upper line is the server with the most clients, the lower one that with the fewest, each "
    "over the mean; the closer both are to 1, the more even. Lines are means over many runs, bands "
    "hold nine runs of ten. Along the axis: 9 servers; one goes (8); two go (6); one goes and "
    "three come (8); one comes (9)."
)

FIGURES = (
    _figure(
        "membership-2",
        "Baseline: clients move only when they have to",
        "A client stays where it is as long as that server is on the list, and otherwise goes to "
        "any server of the list. That works while servers are removed. Servers that are added get "
        f"next to nothing, the last one nothing at all. {_HOW_TO_READ}",
        _BASELINE,
        _baseline_claims,
    ),
    _figure(
        "membership-3",
        "Consistent hashing: few moves, but uneven",
        "Clients and servers are points on a circle, put there by a hash of their names, and each "
        "client belongs to the next server. Each server has k points. Few clients move, but the "
        "arcs between the points differ in length, and with few servers many points do not make "
        f"up for that. {_HOW_TO_READ}",
        _CONSISTENT,
        _consistent_claims,
    ),
    _figure(
        "membership-4",
        "The probabilistic rule, and ours beside it",
        "Each client tosses a coin with just the right odds. From the left: clients that came one "
        "by one to any server, as in the document; the same rule from an exactly even start; and a "
        "rule of ours, in which evenly spread ranks take the place of coins: as few clients move, "
        f"and the counts stay even. {_HOW_TO_READ}",
        _PROBABILISTIC,
        _probabilistic_claims,
    ),
)
