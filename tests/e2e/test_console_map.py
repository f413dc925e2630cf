"""What the console's map, its table of versions and its list of decisions make of what is told."""

from __future__ import annotations

import pytest

from spillover.apps.node.console_view import cluster_view
from support import console_parts
from support import told_console as consoles
from support.console_parts import LINK, frame

page = console_parts.page
run = console_parts.run

pytestmark = pytest.mark.threes


MAP = """async (load, frames) => {
  const { FederationMap } = await load("map");
  const { Flows } = await load("flows");
  const place = document.createElement("div");
  place.style.width = "600px";
  document.body.append(place);
  const chosen = [];
  const map = new FederationMap(place, (id) => chosen.push(id));
  const flows = new Flows();
  frames.forEach((frame) => flows.add(frame));
  map.show(frames.at(-1), flows, "a");
  const told = {};
  for (const [id, node] of map.nodes) {
    const [on, turn] = node.busy.getAttribute("stroke-dasharray").split(" ").map(Number);
    const { state, load } = node.group.dataset;
    const [x, y] = node.group.getAttribute("transform").match(/-?[\\d.]+/g).map(Number);
    told[id] = {
      name: node.group.querySelector(".name").textContent,
      words: node.words.textContent,
      says: node.title.textContent, busy: on / turn, state, load: load ?? null, x, y,
      waiting: node.waiting.textContent, pressed: node.group.getAttribute("aria-pressed"),
    };
  }
  const links = [...map.links.values()].map((link) => ({
    says: link.told.textContent, state: link.line.dataset.state,
    ways: link.ways.map((way) => [way.text.textContent, way.path.dataset.on ?? null]),
  }));
  for (const key of ["Enter", " ", "x"]) {
    map.nodes.get("b").group.dispatchEvent(new KeyboardEvent("keydown", { key }));
  }
  place.remove();
  return [told, links, chosen];
}"""


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


VERSIONS = """async (load, clusters) => {
  const { Members, configuration, named, winner } = await load("members");
  const members = new Members();
  const shown = clusters.map((some) => {
    members.show({ clusters: some });
    return members.card.hidden ? null : [...members.body.children].map((row) => row.textContent);
  });
  return [shown, named(winner(clusters.at(-1)))];
}"""


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


OPERATE = """async (load) => {
  const { Operate } = await load("operate");
  const words = { drain: "Sure to drain?", resume: "Sure to resume?" };
  const operate = new Operate(words);
  document.body.append(operate.place);
  const told = [];
  const text = (one) => one.textContent;
  const look = () => told.push({
    can: [...operate.buttons.values()].filter((one) => !one.disabled).map(text),
    asks: operate.place.querySelector(".sure span")?.textContent ?? null,
    says: operate.told.textContent,
    hint: operate.place.querySelector("#why-not")?.textContent ?? null,
  });
  operate.hello({ actions: ["drain", "resume"], why_not: "not yours" }, "spillover drain x");
  operate.show(["drain"]);
  look();
  operate.hello({ actions: ["drain", "resume"], why_not: null }, "spillover drain x");
  operate.show(["drain"]);
  operate.buttons.get("drain").click();
  look();
  operate.show(["resume"]);
  look();
  operate.buttons.get("resume").click();
  operate.place.querySelector("[data-sure]").click();
  while (operate.told.textContent === "") await new Promise((next) => setTimeout(next, 5));
  look();
  operate.place.remove();
  return told;
}"""


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


LISTED = """async (load) => {
  const { Decisions } = await load("decisions");
  const all = new Decisions();
  document.body.append(all.card, all.explanation.dialog);
  const one = (number, id) => ({
    id: id ?? `r${number}`, at_ms: number, outcome: "kept", neighbor: null, queue_length: 1,
    busy: 1, servers: 2, accept_probability: 1, hops: 0,
  });
  const told = [];
  const show = (at_ms, ...decisions) => {
    all.show({ at_ms, decisions });
    const rows = [...all.body.children];
    told.push([all.rows.size, rows.length, rows[0]?.children[1].textContent ?? null]);
  };
  const scroll = all.card.querySelector(".scroll");
  const point = (kind, pointerType) => {
    scroll.dispatchEvent(new PointerEvent(kind, { pointerType }));
  };
  show(400, ...Array.from({ length: 400 }, (_, at) => one(400 - at)));
  point("pointerenter", "mouse");
  show(401, one(401));
  point("pointerleave", "mouse");
  show(402, one(402));
  point("pointerenter", "touch");
  show(403, one(403, ""));
  all.body.firstChild.click();
  const opened = all.explanation.dialog.open;
  show(5, one(5));
  show(6, one(5));
  all.card.remove();
  return [told, opened];
}"""


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
