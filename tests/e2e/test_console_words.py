"""What the console writes where a test makes up what it is told: each figure in its place, in its
unit and with its words. The page, and what it is sent, are the product's.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from itertools import count

import pytest

from support import told_console as consoles
from support.console_page import cluster, tile

pytestmark = pytest.mark.threes

BUSY = {"detail": "expected at most 32 pages that listen at a time"}


KNOWN = {"accept_probability": 0.5, "neighborhood_accept_probability": 0.25, "queue_length": 3}
NEIGHBORS = [
    {"id": "b", "alive": True, "age_ms": 40.0, "eligible": True, "weight": 0.75},
    {"id": "c", "alive": False, "age_ms": 9000.0, "eligible": False, "weight": 0.0},
]
EXPLAINED = {
    "story": [],
    "decisions": [
        {
            **KNOWN, "outcome": "forwarded", "neighbor": "b", "servers": 5, "draw": 0.5, "hops": 0,
            "policy": "paper", "neighbors": [KNOWN | {"delay_ms": 5.0} | one for one in NEIGHBORS],
        }
    ],
}  # fmt: skip
"""As `/explain` tells of one that was handed on, while nothing was heard of the other neighbor."""


def decided(number, outcome, **fields):
    one = {"id": f"r{number}", "at_ms": 1000.0 * number, "outcome": outcome, "neighbor": None}
    figures = {"queue_length": 7, "busy": 3, "servers": 5, "hops": 1, "accept_probability": 0.25}
    return {**one, **figures, **fields}


def explains(page, expect):
    """What was known of neighbors, and which of it was not."""
    page.route("**/explain/r3", lambda route: route.fulfill(json=EXPLAINED))
    page.locator('[data-kind="all"]').click()
    page.locator("#decisions tbody button", has_text="r3").click()
    expect(page.locator("#explanation tbody tr")).to_have_text(
        ["b30.500.2540 ms5.0 ms0.750", "c???unknown5.0 msnot eligible"]
    )
    page.keyboard.press("Escape")


def follows_the_keyboard(page, expect):
    """From cluster to cluster, in the end to its own."""
    cluster(page, "a").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#cluster h2")).to_have_text("Cluster b")
    cluster(page, "a").click()


def test_a_node_lists_decisions_and_tells_what_it_does_not_do(opened, expect):
    """Newest first, and those of one kind when they are asked for. Clusters have colors by how
    willing they are, and one that drains has none that warns."""
    decisions = [
        decided(4, "refused"),
        decided(3, "forwarded", neighbor="b"),
        decided(2, "kept"),
        decided(1, "started"),
    ]
    actions = {"drain": print, "resume": print}

    accepted = count(step=100)

    def tell():
        willing = {"a": 0.7, "b": 0.3, "c": 0.2}
        states = [consoles.state_of(one, accept_probability=p) for one, p in willing.items()]
        states[0].ledger.home["accepted"] = next(accepted)
        return [*states, consoles.state_of("d", accept_probability=0.0, draining=True)]

    told = consoles.console_of("a", [], tell, decisions=decisions, actions=actions)
    with told as url, opened(url) as page:
        rows = page.locator("#decisions tbody tr")
        said = [
            re.compile(f" (s|min|h){one}73/50.251$")
            for one in ("r4refused", "r3→ b", "r2kept", "r1started")
        ]
        expect(page.locator("#subtitle")).to_have_text("cluster of told · 0")
        expect(rows).to_have_text(said)
        for one, words in zip(decisions, said, strict=True):
            page.locator(f'[data-kind="{one["outcome"]}"]').click()
            expect(rows).to_have_text([words])
        for name, load in {"a": "low", "b": "middle", "c": "high", "d": "low"}.items():
            expect(cluster(page, name)).to_have_attribute("data-load", load)
        expect(tile(page, "requests")).to_have_text(re.compile(r"^\d{2,}/s$"))
        expect(tile(page, "handed on")).to_have_text("0/s")
        explains(page, expect)
        follows_the_keyboard(page, expect)
        actions.clear()  # as if another version had begun there
        page.locator("[data-action=drain]").click()
        page.locator("[data-sure=drain]").click()
        expect(page.locator("#cluster .operate [role=status]")).to_have_text(
            "Not done: POST /console/drain: Not Found"
        )


def test_a_service_that_has_no_place_is_left_alone_for_a_while(opened, expect):
    """Else every page that finds none would ask again at once, on and on."""
    asked = []

    def refuse(route):
        asked.append(route.request.url)
        route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(BUSY))

    def tell():
        return [consoles.state_of("a")]

    with consoles.console_of("a", [], tell) as url, opened(url) as page:
        page.clock.install()
        page.clock.pause_at(datetime.now() + timedelta(hours=1))  # noqa: DTZ005 - as browsers tell it
        page.route("**/console/events", refuse)
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
        expect(page.locator("#lost")).to_contain_text(
            f" It answers 503: {BUSY['detail']}. What is shown is from then. Trying again."
        )
        expect(page.locator("body")).to_have_class("stale")
        page.clock.run_for(9_500)
        assert len(asked) == 1
        page.unroute("**/console/events")
        page.clock.run_for(1_000)
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("body")).not_to_have_class("stale")


def test_a_member_shows_whose_each_partition_is(opened, expect):
    """Also one that is being handed over, and those of a rule that knows of no end; nobody has one
    whose lease is over, whoever had it last."""
    members = [{"node": "m1", "alive_for_ms": 2500.0, "held": 2}]
    members += [{"node": "m2", "alive_for_ms": None, "held": 1}]
    moved = {"to": "m1"}

    def tell():
        allocation = [
            consoles.allocated(0, moved["to"], epoch=12),
            consoles.allocated(1, "m1", stopping=True),
            consoles.allocated(2, "m2", lease_ms_left=None),
            consoles.allocated(3, "m9", lease_ms_left=0.0),
        ]
        renewal = {"kind": "process", "lag_ms_max": 41.6}
        more = {"partitions": 5, "renewal": renewal, "as_of_s": 90.0}
        return consoles.member_of("m1", members=members, allocation=allocation, **more)

    with consoles.member_console("m1", tell) as url, opened(url) as page:
        cells = page.locator("#partitions > *")
        expect(page.locator("#subtitle")).to_have_text("member of group g · 0")
        expect(cells).to_have_text(["0m1", "1m1", "2m2", "3free", "4free"])
        for index, state in enumerate(("held", "stopping", "held", "free", "free")):
            expect(cells.nth(index)).to_have_attribute("data-state", state)
        title = "partition 1: m1, epoch 7, lease for 9.0 s, stopping"
        expect(cells.nth(1)).to_have_attribute("title", title)
        expect(cells.nth(2)).to_have_attribute("title", "partition 2: m2, epoch 7")
        expect(cells.nth(3)).to_have_attribute("title", "partition 3: nobody")
        expect(tile(page, "partitions served")).to_have_text("3 of 5")
        expect(tile(page, "renewals late by")).to_have_text("42 ms")
        expect(tile(page, "Redis")).to_have_text("up")
        expect(page.locator("#partitions + p")).to_have_text("As Redis had it 90 s ago.")
        rows = page.locator("#members tbody tr")
        expect(rows).to_have_text(["m1 (this one)22.5 s", "m21–"])  # noqa: RUF001 - as shown
        expect(page.locator("#moves tbody")).to_have_text("none yet")
        moved["to"] = "m2"
        expect(page.locator("#moves tbody tr")).to_have_text(re.compile(r":\d\d0m1m212$"))
        expect(tile(page, "moves seen here")).to_have_text("1")


def test_a_producer_shows_what_it_has_and_promised(opened, expect):
    """Times in words, sizes in MB, and of the other producers what they say of themselves."""
    grants = [
        {"number": 8, "deliveries": 2, "size_bytes": 70, "state": "given", "ends_in_ms": 2500.0},
        {"number": 9, "deliveries": 1, "size_bytes": 50, "state": "offered", "ends_in_ms": -3.0},
    ]
    wait = {"probe_id": "x-1", "consumer": "me", "held_by": "p2", "waits_ms": 90_000.0}
    moves = {"by": 0}
    flows = {"produced": 20, "acknowledged": 15, "returned": 0}
    told = consoles.producer_of(
        "p1", buffers=4, buffered=2, granted=2, dead=1, waiting=3, takes=5, parked=6,
        memory_bytes=2_560_000, oldest_ms={"object": 2500.0}, open_grants=grants,
        parked_probes=[wait], waiting_takes=[wait], peers={"p2": "http://127.0.0.1:2"},
    )  # fmt: skip
    p2 = {"buffers": 9, "buffered": 8, "granted": 7, "dead": 6, "produced": 5, "acknowledged": 4}
    others = [{"producer": "p2", **p2, "parked": 3, "takes": 2}, {"producer": "p3"}]

    def tell():
        before = dict(flows)
        for name, more in {"produced": 400, "acknowledged": 200, "returned": 100}.items():
            flows[name] += more * moves["by"]
        return told.model_copy(update=before)

    with consoles.producer_console("p1", tell, others) as url, opened(url) as page:
        figures = {"buffered": "2 of 4", "granted": "2", "dead": "1", "producers wait": "3"}
        figures |= {"consumers wait": "5", "oldest object": "2.5 s", "in memory": "2.6 MB"}
        expect(page.locator("#subtitle")).to_have_text("producer of a distributed queue · 0")
        for name, text in figures.items():
            expect(tile(page, name)).to_have_text(text)
        expect(page.locator("#buffer > *")).to_have_text(["object", "object", "free", "free"])
        rows = page.locator("#producers tbody tr")
        expect(rows).to_have_text(
            ["p1 (this one)2 of 42120156", "p28 of 976543", "p3does not answer"]
        )
        link = rows.nth(1).locator("a")
        expect(link).to_have_attribute("href", "http://127.0.0.1:2/console")
        expect(page.locator("#parked tbody tr")).to_have_text("x-1mep290 s")
        expect(page.locator("#takes tbody tr")).to_have_text("x-1me90 s")
        expect(page.locator("#grants tbody tr")).to_have_text(
            ["8270given2.5 s", "9150offered0.0 s"]
        )
        moves["by"] = 1
        plot = page.locator("#flow-lines .u-over")
        newest = plot.evaluate("one => one.clientWidth") - 2
        plot.hover(position={"x": newest, "y": 60})
        reading = page.locator("#flow-lines .reading")
        expect(reading).to_have_text(
            re.compile(r":\d\din [1-9][\d.]+out [1-9][\d.]+back [1-9][\d.]+$")
        )
