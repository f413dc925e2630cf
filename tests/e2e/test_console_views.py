"""What the console makes of states that follow each other: of clusters, members and producers; on
its map, in its tables, and in what can be done.
"""

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
