"""What the console's views of clusters, members and producers make of states that follow each
other: their figures, names and lines.
"""

from __future__ import annotations

import pytest

from support import console_parts
from support import told_console as consoles
from support.console_parts import LINK, frame

page = console_parts.page
run = console_parts.run

pytestmark = pytest.mark.threes


PANEL = """async (load, { frames, chosen }) => {
  const { ClusterPanel } = await load("cluster");
  const { Flows } = await load("flows");
  const panel = new ClusterPanel();
  panel.hello({ name: "a", actions: ["drain", "resume"], why_not: null });
  const flows = new Flows();
  frames.forEach((frame) => flows.add(frame));
  const all = (selector) => [...panel.card.querySelectorAll(selector)];
  const texts = (selector) => all(selector).map((one) => one.textContent);
  const show = (id, frame) => {
    panel.show(frame, flows, id);
    const enabled = all("button").filter((one) => !one.disabled);
    return {
      badge: `${panel.badge.textContent}, ${panel.badge.dataset.outcome}`,
      facts: texts("dt").map((name, at) => `${name}: ${texts("dd")[at]}`),
      neighbors: texts("table:not([data-pool]) tbody tr"),
      can: panel.operate.place.hidden ? null : enabled.map((one) => one.textContent),
      elsewhere: panel.elsewhere.textContent,
      pool: panel.pool.place.hidden ? null : texts("[data-pool] tbody tr"),
    };
  };
  return chosen.map(([id, frame]) => show(id, frame ?? frames.at(-1)));
}"""

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


FEDERATION = """async (load, { frames, changed }) => {
  const { nodeView } = await load("node");
  const place = document.createElement("div");
  document.body.append(place);
  const view = nodeView(place);
  view.hello({ name: "a", actions: [], why_not: null });
  const tiles = () => [...view.tiles.list.children].map((one) => {
    const [value, name] = one.children;
    return `${name.textContent}: ${value.textContent}${value.className ? "!" : ""}`;
  });
  const told = [frames, changed].map((some) => {
    some.forEach((frame) => view.update(frame));
    return tiles();
  });
  const pressed = [0, 1, 0, 0].map((index) => {
    view.legend.children[index].click();
    const buttons = [...view.legend.children];
    return [buttons.map((one) => one.getAttribute("aria-pressed")), view.charts.p99.chosen];
  });
  const charts = Object.entries(view.charts);
  const drawn = charts.map(([name, chart]) => [name, chart.place.id, chart.data]);
  place.remove();
  return [told, pressed, drawn];
}"""


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


MEMBERS = """async (load, { states, at_s }) => {
  const { leaseView } = await load("lease");
  const now = Date.now;
  const place = document.createElement("div");
  document.body.append(place);
  const view = leaseView(place);
  view.hello({ name: "m1", actions: ["drain"], why_not: null });
  const told = states.map((state, index) => {
    Date.now = () => 1000 * at_s[index];
    view.update(state);
    const tiles = [...view.tiles.list.querySelectorAll("b")];
    return {
      names: [...view.names],
      lines: Object.fromEntries([...view.lines].map(([id, line]) => [id, [...line]])),
      moves: [...view.list.children].map((row) => row.textContent.replace(/^.*:\\d\\d(?=\\d)/, "")),
      note: view.note.textContent,
      alarming: tiles.filter((one) => one.className).map((one) => one.dataset.tile),
      redis: tiles[3].textContent, drain: !view.operate.buttons.get("drain").disabled,
    };
  });
  Date.now = now;
  place.remove();
  return told;
}"""


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


PRODUCER = """async (load, { states, at_s }) => {
  const { queueView } = await load("queue");
  const now = Date.now;
  const place = document.createElement("div");
  document.body.append(place);
  const view = queueView(place);
  view.hello({ name: "p1", actions: ["drain", "resume"], why_not: null });
  const told = states.map((state, index) => {
    Date.now = () => 1000 * at_s[index];
    view.update({ ...state, others: [] });
    const tiles = [...view.tiles.list.querySelectorAll("b")];
    return {
      times: [...view.times],
      lines: Object.fromEntries([...view.lines].map(([flow, line]) => [flow, [...line]])),
      alarming: tiles.filter((one) => one.className).map((one) => one.dataset.tile),
      oldest: tiles[5].textContent, note: view.note.textContent,
      cells: [...view.buffer.children].map((one) => one.textContent),
      rows: ["parked", "takes", "grants"].map((name) => view.rows[name].textContent),
      can: [...view.operate.buttons].filter(([, one]) => !one.disabled).map(([action]) => action),
    };
  });
  Date.now = now;
  place.remove();
  return told;
}"""


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
