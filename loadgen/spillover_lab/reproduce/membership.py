"""Shraer & Reed, membership change: figures 2, 3 and 4, how even clients stay while servers come
and go.

The rules are in `policy.membership`, the clients in `sim.membership.rebalancing`. The document
shows one run; here are many, each with servers drawn anew.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spillover.sim.engine.world import stream
from spillover.sim.membership.rebalancing import Step, rebalance, reconfigurations
from spillover_lab.reproduce.figure import (
    Document,
    Effort,
    Figure,
    Panel,
    Series,
    Statement,
    Values,
    above,
    below,
)

DOCUMENT = Document(
    prefix="membership",
    citation="Alexander Shraer, Benjamin Reed: Load-Balancing Clients-Server Connections During "
    "Membership Change",
    heading="Clients that move when servers come and go",
    problem="A thousand clients hold connections to a handful of servers. When a server goes, its "
    "clients have to go elsewhere; when one comes, it should get its share. Yet each move costs "
    "client and server work, and asking the servers who should move costs more.",
    mechanism="All clients learn the new list of servers, and each decides alone, by a draw whose "
    "odds follow from the two lists: stay, move to a new server, or move to a surviving one. All "
    "servers can expect the same number of clients, and as few clients as possible move.",
    reproduced="The paper's experiment: 1 000 clients on 9 servers; then one random server goes, "
    "then two more, then one goes and the three come back, then the last one comes back. Beside "
    "the paper's rule the two rivals it is compared with, and one of ours that needs no draws.",
    left_open="The text says that two servers are added in the third step where it adds three. "
    "Which servers went is not told and does not matter: they are drawn anew for each run.",
)

CLIENTS = 1000
SERVERS = tuple(f"s{number}" for number in range(1, 10))
EVENTS = range(5)
"""The start; 1 removed; 2 removed; 1 removed, 3 added; 1 added."""
RUNS, RUNS_FULL = 200, 2000
EXPECTED_MOVES = (1000 / 9, 250.0, 375.0, 1000 / 9)
"""What the rules give: the clients of those that go, or what the new servers have to get."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to choose servers, as it is run and as it is called on the page."""

    label: str
    rule: str
    start: str = "random"
    """The document's clients begin with the first of a shuffled list."""
    virtual_nodes: int = 1


BASELINE = (Rule("baseline", "baseline"),)
CONSISTENT = tuple(
    Rule(f"consistent hashing, k = {k}", "consistent-hash", virtual_nodes=k) for k in (1, 5, 20)
)
COINS = Rule("probabilistic, start as clients come", "probabilistic")
BALANCED = Rule("probabilistic, balanced start", "probabilistic", start="balanced")
OURS = Rule("stratified (ours)", "stratified", start="balanced")


def _compute(rules: Sequence[Rule]) -> Callable[[Effort, int], Values]:
    def compute(effort: Effort, seed: int) -> Values:
        runs = range(effort.pick(RUNS, RUNS_FULL))
        measured = {r.label: _summary([_one_run(r, f"{seed}/{n}") for n in runs]) for r in rules}
        return {"runs": len(runs), "rules": measured}

    return compute


def _one_run(rule: Rule, name: str) -> list[dict[str, float]]:
    """What is looked at after each event, the start among them."""
    seed = stream(0, name).getrandbits(48)
    lists = reconfigurations(SERVERS, seed)
    lists = [lists[0], *lists]  # a first change that changes nothing shows the start
    steps = rebalance(
        CLIENTS,
        lists,
        rule=rule.rule,
        start=rule.start,
        virtual_nodes=rule.virtual_nodes,
        seed=seed,
    )
    return [_looked_at(*pair) for pair in zip([steps[0], *steps], steps, strict=False)]


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
    """Returns, for each event, the mean of everything looked at, its standard error and the
    range."""
    summary = []
    for number in EVENTS:
        seen = [run[number] for run in runs]
        fields: dict[str, Any] = {}
        for name in seen[0]:
            values = sorted(one[name] for one in seen)
            edge = len(values) // 20
            fields[name] = {
                "mean": statistics.fmean(values),
                "error": statistics.stdev(values) / len(values) ** 0.5,
                "p05": values[edge], "p95": values[-1 - edge],
                "min": values[0], "max": values[-1],
            }  # fmt: skip
        fields["only_those_of_the_change_moved"] = all(
            one["moved"] == (one["left_behind"] or one["clients_per_new"]) for one in seen
        )
        summary.append(fields)
    return summary


def _panels(data: Values) -> list[Panel]:
    lines = (("max_over_mean", "fullest server", "C1"), ("min_over_mean", "emptiest server", "C0"))
    panels = []
    for label, events in data["rules"].items():
        series = [
            Series(
                EVENTS, [e[name]["mean"] for e in events], words, "-o", color=color,
                band=([e[name]["p05"] for e in events], [e[name]["p95"] for e in events]),
            )
            for name, words, color in lines
        ]  # fmt: skip
        servers = [f"{event['servers']['mean']:.0f}" for event in events]
        title = f"{label}: clients of a server / mean"
        panels.append(
            Panel(title, series, "servers, after each event", servers, "", (0, None), 1.0)
        )
    return panels


# --- what the document says of them ---------------------------------------------------------------


def _of(rule: Rule, name: str, field: str = "mean") -> Callable[[Values], list[float]]:
    """One of a rule's figures after each event."""
    return lambda data: [event[name][field] for event in data["rules"][rule.label]]


def _balance(data: Values) -> tuple[float, float, float]:
    start, first, second, *_ = _of(BASELINE[0], "max_over_mean")(data)
    return first, second, start


def _new_servers(data: Values) -> tuple[float, float]:
    mean, error = (
        _of(BASELINE[0], "clients_per_new", field)(data)[3] for field in ("mean", "error")
    )
    return mean, error


def _last_server(data: Values) -> tuple[float, float, int]:
    moved, got = (_of(BASELINE[0], n, "max")(data)[4] for n in ("moved", "clients_per_new"))
    return moved, got, data["runs"]


def _fullest_by_points(data: Values) -> tuple[float, ...]:
    return tuple(statistics.fmean(_of(rule, "max_over_mean")(data)) for rule in CONSISTENT)


def _limited(data: Values) -> str:
    events = [data["rules"][rule.label][number] for rule in CONSISTENT for number in (1, 2, 4)]
    holds = all(event["only_those_of_the_change_moved"] for event in events)
    return "true" if holds else "not true"


def _shares(data: Values) -> tuple[float, float, bool]:
    new, errors = (_of(COINS, "clients_per_new", field)(data)[3:] for field in ("mean", "error"))
    even = (CLIENTS / 8, CLIENTS / 9)
    close = [abs(a - b) < 4 * e for a, b, e in zip(new, even, errors, strict=True)]
    return new[0], new[1], all(close)


def _moves(data: Values) -> tuple[str, bool]:
    moved, errors = (_of(COINS, "moved", field)(data)[1:] for field in ("mean", "error"))
    rows = zip(moved, EXPECTED_MOVES, errors, strict=True)
    close = [abs(a - b) < 4 * e + 1e-9 for a, b, e in rows]
    return ", ".join(f"{count:.1f}" for count in moved), all(close)


def _extremes(data: Values) -> tuple[float, float]:
    return max(_of(COINS, "max_over_mean")(data)), min(_of(COINS, "min_over_mean")(data))


def _drift(data: Values) -> tuple[float, float]:
    first, *_, last = _of(BALANCED, "max_over_mean")(data)
    return first, last


def _ours(data: Values) -> tuple[float, int, float]:
    """How far from even at most, in how many runs, and how many moves too many on average."""
    evens = [CLIENTS / servers for servers in _of(OURS, "servers", "max")(data)]
    ends = [_of(OURS, name, field)(data) for name, field in (("most", "max"), ("fewest", "min"))]
    apart = max(abs(n - even) for own in ends for n, even in zip(own, evens, strict=True))
    pairs = zip(_of(OURS, "moved")(data), _of(OURS, "moved_min")(data), strict=True)
    return apart, data["runs"], max(abs(moved - least) for moved, least in pairs)


HOW_TO_READ = (
    "The upper line is the server with the most clients, the lower one that with the fewest, each "
    "over the mean. Lines are means over many runs, bands hold nine runs of ten. Along the axis: 9 "
    "servers; one goes (8); two go (6); one goes and three come (8); one comes (9)."
)

# fmt: off
FIGURES = (
    Figure(
        "membership-2", "Baseline: clients move only when they have to",
        "A client stays where it is as long as that server is on the list, and otherwise goes to "
        "any server of the list. Servers that are added get next to nothing. " + HOW_TO_READ,
        _compute(BASELINE), _panels, (
            Statement(
                "Removals leave the load balanced", "balanced well in steps 1 and 2", _balance,
                "the fullest server has {:.2f} and {:.2f} times the mean, at the start {:.2f}",
                lambda _, second, __: second < 1.2),
            Statement(
                "When one of 6 servers goes and three come, each of the 8 gets an equal part of "
                "its clients, and the new ones nothing else",
                "21 each on expectation, beside about 166 at each old one", _new_servers,
                f"{{:.1f}} at a new server, where {CLIENTS / 8:.0f} would be even",
                lambda new, error: abs(new - CLIENTS / 48) < 4 * error),
            Statement(
                "Nobody moves to the server that is added last", "no clients migrate to it",
                _last_server, "{:.0f} moved, {:.0f} on it, in all {} runs",
                lambda moved, got, _: moved == got == 0),
        )),
    Figure(
        "membership-3", "Consistent hashing: few moves, but uneven",
        "Clients and servers are points on a circle, put there by a hash of their names, and each "
        "client belongs to the next server. Each server has k points. Few clients move, but the "
        "arcs between the points differ in length. " + HOW_TO_READ,
        _compute(CONSISTENT), _panels, (
            Statement(
                "More points on the circle for each server balance better",
                "higher values of k achieve better load balancing", _fullest_by_points,
                "fullest server over the mean, for k = 1, 5, 20: {:.2f}, {:.2f}, {:.2f}",
                lambda one, five, twenty: one > five > twenty),
            Statement(
                "For as few servers as here even k = 20 is not even enough",
                "not high enough to achieve reasonable load balancing",
                lambda d: _fullest_by_points(d)[2],
                "with k = 20 the fullest server has {:.2f} times the mean; clients that choose at "
                "random give about 1.13", above(1.2)),
            Statement(
                "Only clients of a server that goes move, and only to a server that comes",
                "only the clients that are associated with it", _limited,
                "{} of steps 1, 2 and 4 in all runs", lambda told: told == "true"),
        )),
    Figure(
        "membership-4", "The probabilistic rule, and ours beside it",
        "Each client tosses a coin with just the right odds: clients that came one by one to any "
        "server, as in the document; the same rule from an exactly even start; and a rule of ours, "
        "in which evenly spread ranks take the place of coins. " + HOW_TO_READ,
        _compute((COINS, BALANCED, OURS)), _panels, (
            Statement(
                "Every server can expect the same number of clients, new ones too",
                f"{CLIENTS / 8:.1f} at a new server after step 3, {CLIENTS / 9:.1f} after step 4",
                _shares, "{:.1f} and {:.1f}", lambda _, __, close: close),
            Statement(
                "Only as many clients move as an even result needs",
                "proportional to the change: " + ", ".join(f"{m:.0f}" for m in EXPECTED_MOVES),
                _moves, "in the four steps {}", lambda _, close: close),
            Statement(
                "The fullest and the emptiest server differ little", "very close to optimal",
                _extremes, "between {1:.2f} and {0:.2f} times the mean: no worse than clients that "
                "choose at random, and no better", below(1.2)),
            Statement(
                "Not in the document: a start that is exactly even does not stay so, as each "
                "client tosses its own coin", "(the rules keep evenness in expectation)", _drift,
                "fullest over mean: {:.2f} at the start, {:.2f} after step 4",
                lambda first, last: last > first + 0.02),
            Statement(
                "Not in the document: our stratified rule moves as few and stays even", "(ours)",
                _ours, "never more than {:.1f} clients from even in {} runs; on average within "
                "{:.1f} of the least possible number of moves",
                lambda apart, _, extra: apart <= 5 and extra < 2),
        )),
)
# fmt: on
