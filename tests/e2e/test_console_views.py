"""What the console makes of states that follow each other: of clusters, members and producers; on
its map, in its tables, and in what can be done.
"""

from __future__ import annotations

import pytest

from spillover.apps.node.console_view import cluster_view
from support import console_parts
from support import told_console as consoles
from support.console_parts import LINK, frame, script

page = console_parts.page
run = console_parts.run

PANEL = script("panel")

NEIGHBORS = {
    "b": {"queue_length": 4, "accept_probability": 0.5, "link": LINK | {"cut": True}},
    "c": {"alive": False, "age_ms": 30_000.0},
    "d": {"age_ms": None, "degraded": True},
}


POOL = {
    "held": 3,
    "limit": 9,
    "jobs": 2,
    "counts": {"servers": 1, "classes": 1, "types": 1},
    "servers": [{"id": "s1", "jobs": 2, "queued": 3, "tokens": 4, "rate": 1.5, "state": "out"}],
    "classes": [{"id": "c", "available": 5, "held": 6, "out": 7, "retiring": 8, "limit": 9}],
    "types": [{"id": "t", "blocked": 10, "blocked_total": 11, "work_ms": 12.0}],
}


def counted(n):
    """Cluster a when n of everything have come."""
    counts = {"rejected": 2 * n, "failed": 3 * n, "expired": n, "refused": 5 * n, "pulls": 6 * n}
    neighbors = {name: {**more, "forwards": 4 * n} for name, more in NEIGHBORS.items()}
    more = {"answered": 10 * n, "system_time_sum_ms": 250.0 * n, "stuck": 1, "busy": 3}
    recent = {"p50_ms": 20.0, "p99_ms": 70.0, "seconds": 10.0, "count": 3}
    state = consoles.state_of("a", neighbors, **counts, **more, recent=recent, queue_length=9)
    state.ledger.home["accepted"] = 11 * n
    return state


def test_a_cluster_at_a_closer_look(run):
    """All that it says of itself, each figure with its name; and what can be done now."""
    shadow = {"policy": "adaptive", "same": 3, "other": 1, "saved_ms": 0.0, "lost_ms": 40.0}
    b = consoles.state_of("b", url="http://127.0.0.1:9", shadow=shadow, down=True)
    c = consoles.state_of("c", draining=True, drained=True, shadow=shadow | {"same": 0, "other": 0})
    draining = frame(3000.0, consoles.state_of("a", draining=True))
    gone = frame(3000.0)
    gone["clusters"] = [{"id": "a", "unreachable": True, "last_seen_s": 90.0}]
    frames = [frame(1000.0, counted(1), b, c), frame(3000.0, counted(3), b, c)]
    for one in frames:
        one["clusters"][1]["tokens"] = POOL
    chosen = [["a", None], ["b", None], ["c", None], ["a", draining], ["a", gone]]
    a, b, c, draining, gone = run(PANEL, {"frames": frames, "chosen": chosen})
    assert a == {
        "badge": "up, started",
        "facts": [
            *("waiting, N: 9", "busy servers: 3 of 5", "accepts, P: 1.00"),
            *("with neighbors, R: 1.00", "own requests: 11/s", "handed on: 12/s"),
            *("of these, asked for: 6.0/s", "failed: 4.0/s", "refused: 5.0/s"),
            *("work that fails: 0 %", "p50, p99: 20 ms, 70 ms", "mean system time: 25 ms"),
            *("policy: paper", "configuration: version 0", "home load: 0.00"),
            "neighbors’ requests waiting: 0",  # noqa: RUF001 - as shown
            "rejected: 2.0/s, their clients’ fault",  # noqa: RUF001
            "stuck servers: 1",
        ],
        "neighbors": ["b (cut)40.501.005.0 ms", "c???30 s", "d (degraded)01.001.00never"],
        "can": ["Drain"],
        "elsewhere": "",
        "pool": None,
    }
    assert (b["badge"], b["can"]) == ("servers down, refused", None)
    assert b["facts"][-3:] == [
        *("tokens held: 3 of 9", "jobs on servers: 2"),
        "shadow adaptive: differs in 25 %, there 40 ms later",
    ]
    assert b["pool"] == ["s12341.5out", "c56789", "t101112 ms"]
    assert b["elsewhere"] == "Its decisions, drain and resume are at its own console."
    assert (c["badge"], c["facts"][-1]) == ("drained, kept", "shadow adaptive: not asked yet")
    assert c["elsewhere"] == "Its decisions, drain and resume are at its own node."
    assert (draining["badge"], draining["can"]) == ("draining, kept", ["Resume"])
    assert (gone["badge"], gone["can"]) == ("unreachable, refused", [])
    assert gone["facts"] == ["last heard of: 90 s ago"]


FEDERATION = script("federation")


def test_a_federation_in_figures(run):
    """Sums over clusters, a mean by how much each has done, the worst; what is bad is marked."""

    def at(n, **more):
        b = {"b": {"forwards": 3 * n}}
        counts = {"answered": 10 * n, "system_time_sum_ms": 250.0 * n, "refused": 2 * n}
        slow = {"answered": 30 * n, "system_time_sum_ms": 3000.0 * n}
        recent = {"p50_ms": 20.0, "p99_ms": 70.0, "seconds": 10.0, "count": 3}
        last = {"p50_ms": 30.0, "p99_ms": 90.0, "seconds": 10.0, "count": 3}
        a = consoles.state_of("a", b, queue_length=4, recent=recent, **counts)
        a.ledger.home["accepted"] = 11 * n
        return frame(
            1000.0 * n,
            a,
            consoles.state_of("b", busy=5, queue_length=6, recent=last, **slow, **more),
        )

    failing = {"failed": 24, "health": "degraded", "degraded": True}
    changed = [at(2), at(3, **failing)]
    changed[-1]["clusters"].append({"id": "c", "unreachable": True, "last_seen_s": 1.0})
    told, pressed, drawn = run(FEDERATION, {"frames": [at(0), at(1)], "changed": changed})
    assert told[0] == [
        *("clusters: 2 of 2", "waiting: 10", "busy servers: 7/10", "requests: 11/s"),
        *("handed on: 3.0/s", "failed: 0/s", "refused: 2.0/s!", "mean time: 81 ms"),
        "worst p99: 90 ms",
    ]
    assert told[1][0] == "1 degraded: 2 of 3!"
    assert told[1][5:7] == ["failed: 24/s!", "refused: 2.0/s!"]
    assert pressed == [
        [["true", "false", "false"], "a"],
        [["false", "true", "false"], "b"],
        [["true", "false", "false"], "a"],
        [["false", "false", "false"], None],
    ]
    lines = {name: (place, data[1:]) for name, place, data in drawn}
    assert lines["queue"] == ("queue-lines", [[4] * 4, [6] * 4, [None] * 4])
    assert lines["p50"] == ("p50-lines", [[20] * 4, [30] * 4, [None] * 4])
    assert lines["p99"] == ("p99-lines", [[70] * 4, [90] * 4, [None] * 4])
    place, (*failed, refused, _, _) = lines["failures"]
    assert (place, refused) == ("failure-lines", [None, 2, 2, 2])
    assert failed == [[None, 0, 0, 0], [None, 0, 0, 24], [None] * 4]


MEMBERS = script("members")


def test_a_member_forgets_who_was_away_for_as_long_as_the_lines_reach_back(run):
    """And who owns something is not away. Names keep their colors; a place that became free is used
    again. Each move is told, the last of many."""
    one, two, three = ({"node": f"m{k}", "alive_for_ms": 1.0, "held": 2} for k in (1, 2, 3))

    def state(*members, owners, **more):
        rows = [consoles.allocated(number, owner) for number, owner in enumerate(owners)]
        told = {"members": members, "allocation": rows, "partitions": len(owners), **more}
        return consoles.member_of("m1", **told).model_dump()

    away = {"redis": {"up": False, "problem": "no route"}, "as_of_s": None}
    states = [
        state(one, two, owners=["m1", "m2", "m3"]),
        state(one, owners=["m1", "m1", "m3"], **away),
        state(one, three, owners=["m1"] * 3, draining=True),
        state(one, three, owners=["m1"] * 3),
        state(one, three, owners=["m3"] * 20),
        state(one, {**two, "node": "m4"}, owners=["m1"] * 20),
    ]
    told = run(MEMBERS, {"states": states, "at_s": [10, 20, 100, 135, 136, 137]})
    assert [one["names"] for one in told] == [
        *([["m1", "m2", "m3"]] * 3),
        ["m1", None, "m3"],
        ["m1", None, "m3"],
        ["m1", "m4", "m3"],
    ]
    assert told[2]["lines"] == {"m1": [2, 2, 2], "m2": [2, None, None], "m3": [None, None, 2]}
    assert told[3]["lines"] == {"m1": [2, 2, 2], "m3": [None, 2, 2]}
    assert [one["moves"] for one in told[:3]] == [["none yet"], ["1m2m17"], ["2m3m17", "1m2m17"]]
    assert told[4]["moves"][:3] == ["2m1m37", "1m1m37", "0m1m37"]
    assert len(told[5]["moves"]) == 14
    assert [one["redis"] for one in told[:3]] == ["up", "away", "up"]
    assert [one["alarming"] for one in told[:3]] == [[], ["Redis"], []]
    assert told[1]["note"] == "Redis could never be read. no route"
    assert [one["drain"] for one in told[:4]] == [True, True, False, True]


PRODUCER = script("producer")


def test_a_producer_tells_what_is_unusual_and_how_fast_objects_come_and_go(run):
    """Counts of all time become rates; who began anew has no past. More than there are buffers is
    shown, too."""

    def state(epoch, n, **more):
        counts = {"produced": 900 + 4 * n, "acknowledged": 800 + 2 * n, "returned": 700 + n}
        oldest = {"oldest_ms": {"object": 2500.0}, "buffers": 2, "dead": 0, "buffered": 0}
        return consoles.producer_of("p1", epoch=epoch, **counts, **oldest | more).model_dump()

    full = {"buffered": 3, "dead": 1, "waiting": 1, "durable": True, "draining": True}
    states = [state(1, 0), state(1, 5, **full), state(2, 0), state(2, 20), state(2, 20)]
    told = run(PRODUCER, {"states": states, "at_s": [10, 12, 14, 24, 140]})
    assert [one["lines"]["in"] for one in told] == [[], [10], [10], [10, 8], [8, 0]]
    assert told[3]["lines"] == {"in": [10, 8], "out": [5, 4], "back": [2.5, 2]}
    assert (told[3]["times"], told[4]["times"]) == ([12, 24], [24, 140])
    calm, unusual = told[:2]
    in_memory = "Objects are in memory alone: they are lost with the process."
    on_disk = "Objects outlive the process: they are on the disk. Draining: nothing is taken in."
    assert (calm["note"], unusual["note"]) == (in_memory, on_disk)
    assert (calm["alarming"], calm["oldest"]) == ([], "–")  # noqa: RUF001 - as shown
    assert unusual["alarming"] == ["buffered", "dead", "producers wait"]
    assert unusual["oldest"] == "2.5 s"
    assert (calm["cells"], unusual["cells"]) == (["free"] * 2, ["object"] * 3)
    assert (calm["can"], unusual["can"]) == (["drain"], ["resume"])
    assert calm["rows"] == ["none"] * 3


MAP = script("map")


def five(n):
    """Five clusters on a ring, when n of everything have come."""
    b = {"b": {"forwards": 40 * n, "link": LINK | {"cut": True}}}
    c = {"c": {"forwards": 0, "link": LINK}, "a": {"forwards": 2 * n}}
    states = [
        consoles.state_of("a", b, queue_length=7, busy=5, health="recovering",
                          failed_share=0.25),
        consoles.state_of("b", c, busy=9, accept_probability=0.3),
        consoles.state_of("c", draining=True, drained=True),
        consoles.state_of("far-away-site", down=True, busy=0),
    ]  # fmt: skip
    told = frame(1000.0 * n, *states)
    told["clusters"][-1:] = [
        told["clusters"][-1],
        {"id": "e", "unreachable": True, "last_seen_s": None},
    ]
    ends = (("a", "b"), ("b", "c"), ("c", "e"))
    return told | {"links": [[*between, 5.0] for between in ends]}


def test_the_map_says_what_clusters_and_links_do(run):
    """Each way of a link by itself; what an operator did to it, and that an end of it is dead."""
    told, links, chosen = run(MAP, [five(1), five(2)])
    assert chosen == ["b", "b"]
    assert links == [
        {
            "says": "a → b 40/s, b → a 2.0/s, 5 ms one way, cut by an operator",
            "state": "cut",
            "ways": [["40/s", ""], ["2.0/s", ""]],
        },
        {
            "says": "b → c 0/s, c → b 0/s, 5 ms one way, spoiled by an operator",
            "state": "spoiled",
            "ways": [["", None], ["", None]],
        },
        {
            "says": "c → e 0/s, e → c 0/s, 5 ms one way",
            "state": "dead",
            "ways": [["", None], ["", None]],
        },
    ]
    a, b, c, far, e = (told[name] for name in ("a", "b", "c", "far-away-site", "e"))
    assert a["says"] == (
        "a: recovering, 25 % of the work run here fails; 7 waiting, 5 of 5 servers busy, P 1.00, "
        "R 1.00"
    )
    assert (a["words"], a["waiting"], a["pressed"], b["pressed"]) == (
        *("recovering", "7", "true", "false"),
    )
    assert [one["busy"] for one in (a, b, far)] == [1, 1, 0]
    assert (b["load"], c["load"], b["words"]) == ("middle", "low", "P 0.30  R 1.00")
    assert (c["words"], far["words"], e["words"]) == ("drained", "servers down", "unreachable")
    assert (far["name"], far["state"]) == ("far-awa…", "down")
    assert e["says"] == "e does not answer, last heard of never"
    tops = sorted((a, b, c, e, far), key=lambda one: one["y"])
    assert tops[0] is a, "the first one is at the top"
    assert b["x"] > a["x"] > far["x"], "and they go round as a clock does"
    assert b["y"] == pytest.approx(far["y"], abs=3.0)
    assert c["y"] == pytest.approx(e["y"], abs=3.0)


VERSIONS = script("versions")


def test_versions_and_clients_are_told_as_soon_as_there_is_one(run):
    def of(name, version, by, **fields):
        more = {key: fields.pop(key) for key in ("removed", "superseded") if key in fields}
        told = {"version": version, "by": by, **more}
        return cluster_view(name, consoles.state_of(name, configuration=told, **fields))

    calm = [of("a", 3, "a"), of("b", 3, "a"), {"id": "c", "unreachable": True}]
    one = [of("a", 3, "a", clients={"connected": 0, "moved_away": 1, "put_off": 0}), calm[1]]
    news = [of("a", 3, "b"), of("b", 3, "a"), of("c", 2, "z", removed=True, superseded=7)]
    shown, wins = run(VERSIONS, [calm, one, news])
    assert shown == [
        None,
        ["a010version 3 of a", "b000version 3 of a"],
        [
            "a000version 3 of b",
            "b000version 3 of a, behind version 3 of b",
            (
                "c000version 2 of z, behind version 3 of b, its version 7 was superseded, "
                "removed: it drains"
            ),
        ],
    ]
    assert wins == "version 3 of b"


OPERATE = script("operate")


def test_what_can_be_done_is_asked_for_twice(run, page):
    """The question goes when it makes no sense any more; that nobody answers is said."""
    page.route("**/console/resume", lambda route: route.abort())
    may_not, asked, gone, failed = run(OPERATE)
    assert may_not == {
        "can": [], "asks": None, "says": "", "hint": "not yoursspillover drain x"
    }  # fmt: skip
    assert (asked["can"], asked["asks"], asked["hint"]) == (["Drain"], "Sure to drain?", None)
    assert (gone["can"], gone["asks"]) == (["Resume"], None)
    assert (failed["asks"], failed["says"]) == (None, "Not done: nobody answers there.")


LISTED = script("listed")


def test_a_list_of_decisions_is_short_and_rests_under_a_mouse(run):
    """Of a tenant's request there is no name to ask for; another service has another past."""
    told, opened = run(LISTED)
    assert told == [
        [300, 14, "r400"],
        [300, 14, "r400"],
        [300, 14, "r402"],
        [300, 14, "not shown"],
        [0, 0, None],
        [1, 1, "r5"],
    ]
    assert not opened
