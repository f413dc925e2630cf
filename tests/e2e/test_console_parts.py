"""Parts of the console's page by themselves, in a real browser: each is given values at moments
that a test chooses, and says what it makes of them. Whole pages are in the other files.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial

import pytest

from spillover.apps.node.console_view import cluster_view
from support import told_console as consoles
from support.console_page import open_page

pytestmark = pytest.mark.threes


LOAD = """async (name) => {
  const base = document.querySelector("script[type=module]").src;
  return import(new URL(`${name}.js`, base));
}"""


@contextmanager
def served(chromium):
    """A page of one cluster at rest."""

    def tell():
        return [consoles.state_of("a")]

    with consoles.console_of("a", [], tell) as url, open_page(chromium, url) as page:
        yield page


@pytest.fixture(scope="module")
def page(chromium):
    """One for all tests that leave nothing behind."""
    with served(chromium) as page:
        yield page


def evaluate(page, script, value=None):
    return page.evaluate(f"async (given) => ({script})({LOAD}, given)", value)


@pytest.fixture
def run(page):
    """`run(script, value)`: what an async function of the page's modules and the value returns."""
    return partial(evaluate, page)


def frame(at_ms, *states):
    """What a page is sent of these clusters."""
    clusters = [cluster_view(one.cluster, one) for one in states]
    return {"at_ms": at_ms, "clusters": clusters, "links": [], "decisions": []}


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
      badge: panel.badge.textContent,
      facts: texts("dt").map((name, at) => `${name}: ${texts("dd")[at]}`),
      neighbors: texts("tbody tr"),
      can: panel.operate.place.hidden ? null : enabled.map((one) => one.textContent),
      elsewhere: panel.elsewhere.textContent,
    };
  };
  return chosen.map(([id, frame]) => show(id, frame ?? frames.at(-1)));
}"""

LINK = {"cut": False, "loss": 0.0, "delay_ms": 1.0}
NEIGHBORS = {
    "b": {"queue_length": 4, "accept_probability": 0.5, "link": LINK | {"cut": True}},
    "c": {"alive": False, "age_ms": 30_000.0},
    "d": {"age_ms": None, "degraded": True},
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
    chosen = [["a", None], ["b", None], ["c", None], ["a", draining], ["a", gone]]
    a, b, c, draining, gone = run(PANEL, {"frames": frames, "chosen": chosen})
    assert a == {
        "badge": "up",
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
    }
    assert (b["badge"], b["can"]) == ("servers down", None)
    assert b["facts"][-1] == "shadow adaptive: differs in 25 %, there 40 ms later"
    assert b["elsewhere"] == "Its decisions, drain and resume are at its own console."
    assert (c["badge"], c["facts"][-1]) == ("drained", "shadow adaptive: not asked yet")
    assert c["elsewhere"] == "Its decisions, drain and resume are at its own node."
    assert (draining["badge"], draining["can"]) == ("draining", ["Resume"])
    assert (gone["badge"], gone["can"]) == ("unreachable", [])
    assert gone["facts"] == ["last heard of: 90 s ago"]


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


LINES = """async (load, { shown, at }) => {
  const { Chart } = await load("charts");
  const place = document.createElement("div");
  place.style.width = "800px";
  document.body.append(place);
  const layers = [{ word: "failed" }, { word: "refused" }];
  const format = (value) => `${value}/s`;
  const chart = new Chart(place, { format, least: 5, layers, calm: "calm" });
  const told = [];
  for (const { times, failed, refused } of shown) {
    chart.show(times, ...[failed, refused].map((lines) => new Map(Object.entries(lines))));
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    const { x, y } = chart.plot.scales;
    chart.plot.setCursor({ left: at * chart.plot.over.clientWidth, top: 5 });
    await new Promise((drawn) => requestAnimationFrame(drawn));
    const named = [...chart.label.children].slice(1).map((one) => one.textContent);
    const read = chart.label.hidden ? null : named;
    told.push({ x: x.max - x.min, y: y.max, calm: !chart.calm.hidden, read });
  }
  const colors = (chosen) => {
    chart.choose(chosen);
    return chart.plot.series.slice(1, 3).map((line) => line.stroke());
  };
  const plain = colors(null);
  const chosen = [colors("a"), colors("nobody")];
  const faded = chosen.map((some) => some.map((one, at) => one === plain[at]));
  place.remove();
  return [told, faded];
}"""


def test_a_chart_shows_so_many_seconds_and_reads_the_largest_values(run):
    """Half a minute to two; at least as high as it is told to be. Named at the pointer are the
    largest, whichever layer they are of; one thing may be brought forward."""
    short = {"times": [100, 101, 110], "failed": {"a": [0, 0, 1], "b": [0, 0, 3]}}
    short["refused"] = {"a": [0, 0, 2], "b": [0, 0, 0]}
    ten = [f"k{number}" for number in range(10)]
    long = {"times": [100, 200, 300], "failed": {one: [0, 0, 50 - k] for k, one in enumerate(ten)}}
    long["refused"] = {one: [None, None, None] for one in ten}
    calm = {"times": [100, 200], "failed": {"a": [0, 0], "b": [0, None]}}
    calm["refused"] = calm["failed"]
    told, faded = run(LINES, {"shown": [short, long, calm], "at": 0.999})
    assert told[0]["read"] == ["b 3/s failed", "a 2/s refused", "a 1/s failed"]
    assert told[1]["read"] == [
        *(f"k{number} {50 - number}/s failed" for number in range(8)),
        "and 2 more",
    ]
    assert told[2]["read"] is None
    assert [one["x"] for one in told] == [30, 120, 100]
    assert [one["y"] for one in told] == [5, pytest.approx(54), 5]
    assert [one["calm"] for one in told] == [False, False, True]
    assert faded == [[True, False], [True, True]]


WORDS = """async (load) => {
  const { color, duration, milliseconds, percent, webAddress } = await load("dom");
  return {
    duration: [3600, 7100, 7200, null].map((one) => duration(one ?? NaN)),
    milliseconds: [9.96, 9999, 10_000].map(milliseconds),
    percent: [0.0994, 0.0996, 0.5, NaN].map(percent),
    addresses: ["http://h:1/", "https://h", "ftp://h", "javascript:1//", null]
      .map((url) => webAddress(url, "/x")),
    colors: [5, 6, 20].map((count) => {
      return new Set(Array.from({ length: count }, (_, at) => color(at, count))).size;
    }),
  };
}"""


def test_values_in_words(run):
    assert run(WORDS) == {
        "duration": ["60 min", "118 min", "2 h", "never"],
        "milliseconds": ["10.0 ms", "9999 ms", "10.0 s"],
        "percent": ["9.9 %", "10 %", "50 %", "–"],  # noqa: RUF001 - as shown
        "addresses": ["http://h:1/x", "https://h/x", None, None, None],
        "colors": [5, 6, 20],
    }


STREAM = """async (load) => {
  const { Connection } = await load("connection");
  const told = window.told = [];
  const pieces = window.pieces = [];
  window.asked = 0;
  window.fetch = async (url, { signal }) => {
    if (url !== "told") throw new TypeError("not this one"); // the page's own connection
    window.asked += 1;
    const left = pieces.shift();
    if (left === undefined) throw new TypeError("nobody");
    const body = new ReadableStream({
      start(to) {
        window.hang = () => { try { to.close(); } catch { /* it was closed */ } };
        signal.addEventListener("abort", window.hang);
        for (const piece of left) to.enqueue(new TextEncoder().encode(piece));
      },
    });
    return new Response(body, { status: 200 });
  };
  const shown = (value) => (value.state ? [value.state, value.why] : value);
  const say = (name) => (value) => told.push([name, shown(value)]);
  addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    told.push(["bug", event.reason.name]);
  });
  const hello = 'event: hello\\ndata: {"n": 1}\\n\\n';
  const update = "event: update\\ndata: 2\\n\\n";
  pieces.push([hello.slice(0, 20), hello.slice(20) + update.slice(0, 9), `${update.slice(9)}eve`]);
  const names = ["hello", "update", "state", "denied"];
  const on = Object.fromEntries(names.map((name) => [name, say(name)]));
  window.connection = new Connection("told", on);
}"""

HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_connection_is_kept_up(chromium, until):
    """What comes in pieces is put together; silence is no life; who ends is asked again at once,
    and after a second where nobody answers; a page that nobody sees sleeps; a bug is seen."""
    with served(chromium) as page:
        keeps_up(page, until)


def keeps_up(page, until):
    page.clock.install()
    page.clock.pause_at(datetime.now() + timedelta(hours=1))  # noqa: DTZ005 - as browsers tell it

    def told(count=1):
        """What was told since the last time: so much, and nothing else."""
        until(lambda: page.evaluate("told.length") >= count)
        return page.evaluate("told.splice(0)")

    evaluate(page, STREAM)
    live = ["state", ["live", ""]]
    assert told(3) == [live, ["hello", {"n": 1}], ["update", 2]]
    page.clock.run_for(3_900)
    assert told(0) == []
    page.clock.run_for(200)
    silent = "It says nothing any more, though the connection stands."
    assert told() == [["state", ["lost", silent]]]
    page.evaluate("pieces.push(['event: update\\ndata: 3\\n\\n'])")
    page.clock.run_for(1_000)
    assert told(2) == [live, ["update", 3]]
    page.evaluate("hang()")
    nobody = ["state", ["lost", "Nobody answers there."]]
    assert told() == [nobody]
    page.clock.run_for(1)
    assert told() == [nobody], "it was asked again at once"
    asked = page.evaluate("asked")
    page.clock.run_for(900)
    assert page.evaluate("asked") == asked
    page.evaluate("pieces.push(['event: update\\ndata: 4\\n\\n'])")
    page.clock.run_for(200)
    assert told(2) == [live, ["update", 4]]
    page.evaluate(HIDE, True)
    page.clock.run_for(3_000)
    page.evaluate(HIDE, False)
    assert told(0) == [], "it was not looked away from for long"
    page.evaluate(HIDE, True)
    page.evaluate("clearTimeout(connection.timers.silent)")  # as if something had come
    page.clock.run_for(15_100)
    assert told() == [["state", ["asleep", ""]]]
    page.evaluate("pieces.push(['event: update\\ndata: {\\n\\n'])")
    page.evaluate(HIDE, False)
    assert told(2) == [live, ["bug", "SyntaxError"]]
