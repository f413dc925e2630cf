"""What commands show of results, cell by cell: each figure under its title, in its unit. The
results are made up, so that no two figures are alike.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace

import pytest

from spillover.cli import explain, plan, tls, tokens
from spillover.cli.models import (
    exact_probing,
    exact_tokens,
    sim_leases,
    sim_overflow,
    sim_probing,
    sim_rebalance,
    sim_tokens,
)
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.model.statistics import SUMMARY_FIELDS
from spillover_loadgen.terminal import open_console


@pytest.fixture
def lines(capsys, monkeypatch):
    """`lines(show, what)`: the lines that it prints, as words with one blank between; no rules."""
    monkeypatch.setenv("COLUMNS", "200")

    def printed(show, *what):
        show(*what)
        told = "".join(capsys.readouterr())
        rows = [" ".join(re.sub("[│┃]", " ", line).split()) for line in told.splitlines()]
        return [row for row in rows if re.search(r"\w", row)]

    return printed


def test_a_pool_that_works(lines):
    """Its servers, classes and types; of a class that is one of many there are dots."""
    row = {"id": "s1", "rate": 1.5, "jobs": 2, "queued": 3, "tokens": 4, "state": "up"}
    run = {"type": "t", "how": "not_run", "in_a_row": 5, "done_elsewhere": 6, "problem": "busy"}
    counts = {"available": 5, "held": 6, "out": 7, "retiring": 8, "limit": 9}
    many = [f"c{k}" for k in range(tokens.SHOWN_CLASSES_MAX + 1)]
    types = [
        {"id": "t", "blocked": 10, "blocked_total": 11, "work_ms": 12.4, "classes": many},
        {"id": "u", "blocked": 0, "blocked_total": 1, "work_ms": None, "classes": many[:-1]},
    ]
    told = {
        "servers": [row, {**row, "id": "s2", "state": "failing", "not_done": [run]}],
        "classes": [{"id": "c", **counts}],
        "types": types,
    }
    assert lines(lambda: [open_console().print(one) for one in tokens._tables(told)]) == [
        "server rate jobs queued tokens state",
        "s1 1.5 2 3 4 up",
        "s2 1.5 2 3 4 failing",
        "class available held out retiring limit",
        "c 5 6 7 8 9",
        "type blocked now in all work classes",
        "t 10 11 12 ms c0 c1 c2 c3 c4 c5 c6 c7 ...",
        "u 0 1 c0 c1 c2 c3 c4 c5 c6 c7",
        "server in a row done elsewhere does not do said last",
        "s2 5 6 t (not run) busy",
    ]


KNOWN = {"accept_probability": 0.25, "neighborhood_accept_probability": 0.5, "queue_length": 3}
ASKED = KNOWN | {"policy": "paper", "servers": 5, "draw": 0.125, "hops": 1, "neighbors": []}
ROW = {"id": "b", "alive": True, "age_ms": 40.0, "delay_ms": 5.0, "eligible": True, "weight": 0.75}
LOAD = {"load_age_ms": 30.0, "ahead": 2, "unreported": 6, "load": 0.875, "wait_ms": 70.0}
ROWS = [
    KNOWN | ROW | LOAD | {"in_all_ms": 80.0},
    KNOWN | ROW | {"id": "c", "alive": False, "load_age_ms": None, "eligible": False},
]
STORY = [
    ({"event": "decided"}, {"outcome": "forwarded", "neighbor": "b", "neighbors": ROWS}),
    {"event": "refused_by", "neighbor": "b", "at_ms": 12.0},
    ({"event": "decided"}, {"outcome": "refused", "reason": "queue_full", "draw": None}),
    ({"event": "decided"}, {"outcome": "started", "may_keep": False}),
    {"event": "not_started", "server": "s1", "problem": "503", "at_ms": 13.0},
    ({"event": "decided"}, {"outcome": "kept", "older_went_to": "c", "shadow": {"words": "So."}}),
    ({"event": "decided"}, {"outcome": "kept", "may_keep": False, "by_load": {"words": "Long."}}),
    {"event": "pulled_by", "neighbor": "d", "at_ms": 14.0},
    {"event": "went_first", "neighbor": "e"},
    {"event": "ended", "outcome": "done", "at_ms": 99.6},
]


def test_a_story(lines):
    """Each decision at its place in it, with its grounds; what comes after belongs to a node that
    tells no story."""
    told = {
        "story": [one[0] if isinstance(one, tuple) else one for one in STORY],
        "decisions": [ASKED | one[1] for one in STORY if isinstance(one, tuple)],
    }
    told["decisions"].append(ASKED | {"outcome": "started"})
    numbers = "N 3, m 5, P 0.250, R 0.500, draw 0.125, hops 1"
    may_not = numbers.replace("m 5", "may not keep")
    assert lines(lambda: open_console().print(explain._block("a", told))) == [
        "cluster a",
        "handed on to b",
        f"policy paper: {numbers}",
        "neighbor age N P R delay weight load told ahead sent since home load wait there in all",
        "b 40 ms 3 0.250 0.500 5 ms 0.750 30 ms ago 2 6 0.875 70 ms 80 ms",
        "c? 40 ms 5 ms never",
        "refused by b after 12 ms",
        "refused: queue_full",
        f"policy paper: {numbers.replace('0.125', 'none')}",
        "started at once, a server was free",
        "not started on server s1 (503) after 13 ms",
        "kept, it joined the queue: one that waits longer went to c in its place",
        f"policy paper: {numbers}",
        "So.",
        "kept for want of a neighbor that takes it",
        f"policy paper: {may_not}",
        "Long.",
        "handed on to a neighbor that had an idle server and asked for work: d after 14 ms",
        "handed on in place of a newer request, to e",
        "ended done after 100 ms",
        "started at once, a server was free",
    ]
    for problem, words in (
        ("unreachable", "does not answer"),
        ("unknown_request", "knows nothing of it (any more)"),
    ):
        gone = explain._block("b", {"decisions": [], "problem": problem})
        assert lines(open_console().print, gone) == ["cluster b", words]


def test_why_a_token_was_given(lines):
    """Where there was nothing else to give, and where there was more than is told."""
    told = {"token": "c-1", "class": "c", "server": "s1", "available_ms": 20.0}
    told |= {"available_releases": 3, "left_out": ["s2", "s3"]}
    words = "token c-1 of class c, on server s1, not again on s2, s3"
    assert explain._granted({"granted": told}) == (
        f"{words}: no other was there (available for 20 ms, 3 releases)"
    )
    others = {"others": [{"class": "d", "available_releases": 7}], "others_count": 2}
    assert explain._granted({"granted": told | others}) == (
        f"{words}: the longest available, for 20 ms, 3 releases; others by releases: d 7, ..."
    )
    assert explain._granted({"granted": None}) == ""


def test_a_plan_of_servers(lines):
    """A site without requests has no p99."""
    told = {
        "isolated": {"servers": {"a": 4, "b": 1}, "p99_ms": {"a": 80.4, "b": None}, "total": 5},
        "networked": {"servers": {"a": 2, "b": 3}, "p99_ms": {"a": 90.6, "b": 70.0}, "total": 6},
        "topology": "two",
        "policy": "adaptive",
        "p99_ms": 100.0,
        "saved_share": -0.2,
    }
    assert lines(plan._print, told) == [
        "servers for p99 <= 100 ms: two",
        "site alone p99, ms adaptive p99, ms",
        "a 4 80 2 91",
        "b 1 - 3 70",
        "all 5 6",
        "networking takes 20% more servers",
    ]


def test_leases_at_the_end(lines):
    told = {
        "rule": "guarded",
        "counts": {"n0": 3, "n1": 4},
        "moves": 5,
        "moves_min": 2,
        "unowned_ms_max": 600.4,
        "double_owned_ms": 70.0,
        "challenges": 8,
    }
    said = (
        "a partition stood still for at most 600 ms; run by two nodes at once for 70 ms in all; "
        "8 challenges"
    )
    table = ["partitions by node at the end: guarded", "n0 n1", "3 4"]
    assert lines(sim_leases._print_leases, told | {"load_over_mean_max": 1.256}) == [
        *table,
        f"5 moves, at least 2 were needed; {said}",
        "the most loaded node has 1.26 of the mean load",
    ]
    without = told | {"load_over_mean_max": None, "moves_min": None}
    assert lines(sim_leases._print_leases, without) == [*table, f"5 moves; {said}"]


def test_clients_that_moved(lines):
    step = {
        "servers": ["s1", "s2"],
        "clients": {"s1": 40, "s2": 60},
        "moved": 30,
        "moved_min": 20,
        "min_over_mean": 0.8,
        "max_over_mean": 1.2,
    }
    told = {"clients": 100, "rule": "baseline", "steps": [step]}
    assert lines(sim_rebalance._print_steps, told) == [
        "100 clients, baseline",
        "servers after the change moved at least fewest most fewest/mean most/mean",
        "2: s1, s2 30 20 40 60 0.800 1.200",
    ]


PROBING = {
    "probes_mean": 1.25,
    "wait_mean": 51.5375,
    "empty_probability": 0.125,
    "producer_utilization": 0.75,
    "consumer_utilization": 0.5,
    "throughput": 0.98765432,
}


def test_figures_of_the_distributed_queue(lines):
    """As the model has them, and as they were measured."""
    assert lines(exact_probing._print, PROBING) == [
        "figure model",
        "probes of a request 1.25",
        "wait for an object 51.5375",
        "probes that find nothing 0.125",
        "production capacity in use 0.75",
        "consumers' time in use 0.5",
        "objects per unit of time 0.987654",
    ]
    widths = {name: value / 100 for name, value in PROBING.items()}
    assert lines(sim_probing._print, {**PROBING, "ci95": widths, "objects": 700}) == [
        "figure measured ± (95 %)",
        "probes of a request 1.25 0.013",
        "wait for an object 51.5375 0.52",
        "probes that find nothing 0.125 0.0013",
        "production capacity in use 0.75 0.0075",
        "consumers' time in use 0.5 0.005",
        "objects per unit of time 0.987654 0.0099",
        "700 objects",
    ]


POOL = Pool(
    name="two",
    servers=(PoolServer(id="s1", rate=1.0), PoolServer(id="s2", rate=4.0)),
    classes=(PoolClass(id="c", servers=("s1", "s2"), tokens=3),),
    types=(PoolType(id="t", rate=2.5, classes=("c",)),),
)


def test_what_theory_says_of_a_pool(lines, require, capsys):
    """Types and servers side by side, of which there need not be as many; some shares are open."""
    require(importlib.util.find_spec("numpy"), "numpy, from the extra `sim`")
    from spillover.sim.theory.tokens.exact import TokenFigures

    figures = TokenFigures(
        blocking=0.125, blocking_per_type={"t": None}, occupancy=0.4375, idle={"s1": 0.2, "s2": 0.3}
    )
    assert lines(exact_tokens._print_figures, POOL, "ideal", figures) == [
        "pool two, ideal, load 0.5",
        "type rate blocked server rate idle",
        "t 2.5 open s1 1 0.2",
        "s2 4 0.3",
        "blocked 0.125 of all jobs, 0.4375 of all capacity in use",
    ]
    exact_tokens._print_figures(POOL, "ideal", figures)
    (last,) = [row for row in capsys.readouterr().err.splitlines() if "s2" in row]
    cells = [cell.strip() for cell in last.split("│")[1:-1]]
    assert cells == ["", "", "", "s2", "4", "0.3"]


def test_what_was_simulated_of_a_pool(lines):
    """Each share with its own interval; what could not be told is a dash."""

    def shares(first):
        of_types = {"t1": first / 2, "t2": None}
        return {
            "blocking": {"average": first, "per_type": of_types},
            "occupancy": first / 4,
            "idle": {"s1": first / 8, "s2": first / 16},
        }

    told = {
        **shares(0.8), "ci95": shares(0.016), "pool": "two", "load": 0.90001, "policy": "dynamic",
        "order": "fifo", "discipline": "ps", "sizes": "det", "jobs": 5000, "warm_up_jobs": 600,
        "jobs_per_s": 70000.4,
    }  # fmt: skip
    assert lines(sim_tokens._print_tokens, told) == [
        "two at load 0.9: dynamic, fifo, ps, det",
        "share 95 % interval",
        "blocked 0.800000 ± 0.016000",
        "blocked, type t1 0.400000 ± 0.008000",
        "blocked, type t2 - -",
        "occupancy 0.200000 ± 0.004000",
        "idle, server s1 0.100000 ± 0.002000",
        "idle, server s2 0.050000 ± 0.001000",
        "5000 jobs after 600 to warm up, 70000 jobs/s simulated",
    ]


def test_what_is_wrong_with_certificates(lines, require):
    """Of a file that holds none only that; warnings come last, and do not count."""
    require(importlib.util.find_spec("cryptography"), "cryptography, from the extra `tls`")
    from spillover.tools.certificates.checking import Found

    known = Found(
        place="a.crt", expected="a.x", subject="a", names=["h1", "h2"], fingerprint="AB:CD",
        issuer="CA of x", not_before="2031-01-01", not_after="2031-04-01", days_left=12.5,
        warnings=["others may read it"],
    )  # fmt: skip
    nameless = replace(known, place="c.crt", names=[], expected=None, warnings=[])
    wrong = Found(place="b.crt", problems=["expected PEM", "expected less"])
    statuses = []

    def tell(*found):
        statuses.append(tls._tell_found([*found], as_json=False))

    assert lines(tell, known, nameless, wrong) == [
        "a.crt: as it should be",
        "expected a.x",
        "subject a",
        "names h1, h2",
        "issuer CA of x",
        "fingerprint sha256 AB:CD",
        "holds 2031-01-01 to 2031-04-01, 12.5 days left",
        "warning others may read it",
        "c.crt: as it should be",
        "subject a",
        "names none",
        "issuer CA of x",
        "fingerprint sha256 AB:CD",
        "holds 2031-01-01 to 2031-04-01, 12.5 days left",
        "b.crt: expected PEM; expected less",
    ]
    lines(tell, known)
    assert statuses == [1, 0]


def times(first):
    return {name: first + k for k, name in enumerate(SUMMARY_FIELDS)}


def ran(policy, first, **more):
    """A run whose times are numbers from there on."""
    plain = {"topology": "two", "policy": policy, "requests": 100, "forwarded_share": 0.25}
    outcomes = {"done": 97, "refused": 2, "failed": 1}
    plain |= {"outcomes": outcomes, "hops": {0: 75, 1: 25}, "queue_length_max": 9}
    nothing = {"system_time_ms": dict.fromkeys(SUMMARY_FIELDS)}
    own = {"a": {"system_time_ms": times(first)}, "b": nothing}
    whole = {"system_time_ms": times(first + 10), "requests_per_s": 1234.4}
    return {**plain, "per_cluster": own, **whole, **more}


def row(name, first):
    return " ".join([name, *(f"{time:.1f}" for time in times(first).values())])


def test_a_run_of_one_policy(lines):
    """By home, and by type where there are types; nobody came to one of the homes."""
    typed = {"t": {"requests": 7, "blocked": 0.125, "system_time_ms": times(30)}}
    shadow = {"policy": "paper", "same": 30, "other": 10, "saved_ms": 2500.0, "lost_ms": 400.0}
    told = ran("adaptive", 1, per_type=typed, shadow=shadow, faults=3)
    mean, p50, p99, most = (times(30)[name] for name in sim_overflow.TYPE_FIELDS)
    assert lines(sim_overflow._print, {"adaptive": told}) == [
        "system time in ms: two, adaptive",
        " ".join(["home", *SUMMARY_FIELDS]),
        row("a", 1),
        " ".join(["b", *["-"] * len(SUMMARY_FIELDS)]),
        row("all", 11),
        "system time in ms",
        "type requests blocked mean p50 p99 max",
        f"t 7 0.1250 {mean:.1f} {p50:.1f} {p99:.1f} {most:.1f}",
        (
            "100 requests, 25.0% forwarded, hops 0: 75, 1: 25, longest queue 9, "
            "not done (refused: 2, failed: 1), 3 faults, 1234 requests/s simulated"
        ),
        (
            "paper, asked along, differs in 25.0% of 40 decisions: 2.5 s sooner in all, "
            "0.4 s later, by estimate"
        ),
    ]


def test_runs_of_several_policies(lines):
    """Side by side, each with a sentence of its own; of what there is none nothing is said."""
    calm = {"outcomes": {"done": 100}, "hops": {}, "faults": 0}
    runs = {"paper": ran("paper", 1, **calm), "shared": ran("shared", 2)}
    assert lines(sim_overflow._print, runs) == [
        "system time in ms: two",
        " ".join(["policy", *SUMMARY_FIELDS]),
        row("paper", 11),
        row("shared", 12),
        (
            "paper: 100 requests, 25.0% forwarded, hops none, longest queue 9, "
            "1234 requests/s simulated"
        ),
        (
            "shared: 100 requests, 25.0% forwarded, hops 0: 75, 1: 25, longest queue 9, "
            "not done (refused: 2, failed: 1), 1234 requests/s simulated"
        ),
    ]
