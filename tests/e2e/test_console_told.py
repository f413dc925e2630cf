"""How the console shows states that a test makes up, since nodes are seldom in them: the page, and
what it is sent, are the product's.
"""

from __future__ import annotations

import re

from support import told_console as consoles
from support.console_page import cluster, fact, has_no_sideways_scroll


def test_degraded_clusters_are_marked(opened, expect):
    """By a shape and a word, not by color alone; said aloud; until they are well again."""
    b = {"health": "degraded", "degraded": True, "failed_share": 0.83, "accept_probability": 0.0}
    links = [("a", "b"), ("a", "c"), ("b", "c")]

    def tell():
        neighbors = {"b": {"degraded": b["degraded"]}, "c": {}}
        return [
            consoles.state_of("a", neighbors),
            consoles.state_of("b", {"a": {}, "c": {}}, **b),
            consoles.state_of("c", {"a": {}}),
        ]

    with consoles.console_of("a", links, tell) as url, opened(url, width=360, height=740) as page:
        triangle = cluster(page, "b").locator('[data-of="degraded"]')
        disc = cluster(page, "b").locator('[data-of="recovering"]')
        expect(triangle).to_be_visible()
        expect(cluster(page, "b").locator(".words")).to_have_text("degraded")
        expect(cluster(page, "b")).to_have_attribute("aria-label", re.compile("degraded, 83 %"))
        expect(cluster(page, "a").locator('[data-of="degraded"]')).to_be_hidden()
        expect(page.locator("[data-tile=clusters] + span")).to_have_text("1 degraded")
        expect(page.locator(".legend button").nth(1)).to_have_text("b, degraded")
        expect(page.locator("#cluster tbody th")).to_have_text(["b (degraded)", "c"])
        expect(page.locator("#cluster .notice")).to_be_hidden()
        cluster(page, "b").click()
        expect(page.locator("#cluster .badge")).to_have_text("degraded")
        expect(page.locator("#cluster .notice")).to_contain_text("83 % of the work run here fails")
        assert has_no_sideways_scroll(page)
        b |= {"health": "recovering", "degraded": False, "failed_share": 0.004}
        expect(disc).to_be_visible()
        expect(triangle).to_be_hidden()
        expect(cluster(page, "b").locator(".words")).to_have_text("recovering")
        expect(page.locator("#cluster .notice")).to_contain_text("0.4 % of the work run here")
        expect(page.locator("#cluster .badge")).to_have_text("recovering")
        b |= {"health": "well", "failed_share": 0.0, "accept_probability": 1.0}
        expect(disc).to_be_hidden()
        expect(page.locator("#cluster .badge")).to_have_text("up")
        expect(page.locator("#cluster .notice")).to_be_hidden()
        expect(page.locator("[data-tile=clusters] + span")).to_have_text("clusters")


def test_loads_pulls_and_a_shadow_are_shown(opened, expect):
    """As numbers of the cluster, which move; without a shadow there is no word of one."""
    b = {"policy": "adaptive", "home_load": 1.254, "foreign_waiting": 3, "pulls": 0}
    shadow = {"policy": "adaptive", "same": 97, "other": 3, "saved_ms": 150.0, "lost_ms": 0.0}

    def tell():
        b["pulls"] += 1
        return [consoles.state_of("a", {"b": {}}, shadow=shadow), consoles.state_of("b", **b)]

    with consoles.console_of("a", [("a", "b")], tell) as url, opened(url) as page:
        expect(fact(page, "shadow adaptive")).to_have_text("differs in 3.0 %, there 50 ms sooner")
        expect(fact(page, "of these, asked for")).to_have_text("0/s")
        cluster(page, "b").click()
        expect(fact(page, "home load")).to_have_text("1.25")
        expect(fact(page, "neighbors’ requests waiting")).to_have_text("3")  # noqa: RUF001 - as shown
        expect(fact(page, "of these, asked for")).not_to_have_text(re.compile("^(0|–)/s"))  # noqa: RUF001
        expect(fact(page, "shadow adaptive")).to_have_count(0)


def test_versions_and_clients_are_shown_where_there_is_something_to_say(opened, expect):
    """Who is behind, whose change was lost, who is removed; how many clients are where. In words,
    in both themes and on a phone; nothing while all agree and nobody has a client."""
    of = {name: {"configuration": {"version": 3, "by": "a"}} for name in ("a", "b", "c")}

    def tell():
        return [consoles.state_of(name, **fields) for name, fields in of.items()]

    phone = {"width": 360, "height": 740, "color_scheme": "dark"}
    links = [("a", "b"), ("b", "c")]
    with consoles.console_of("a", links, tell) as url, opened(url, **phone) as page:
        members, name_of = page.locator("#members"), page.locator("[data-tile=clusters] + span")
        rows = members.locator("tbody tr")
        expect(fact(page, "configuration")).to_have_text("version 3 of a")
        expect(members).to_be_hidden()
        expect(cluster(page, "a").locator(".words")).to_have_text("P 1.00  R 1.00")
        of["b"]["configuration"] = {"version": 4, "by": "c", "superseded": 4}
        of["c"]["configuration"] = {"version": 4, "by": "c"}
        of["c"]["clients"] = {"connected": 12, "moved_away": 3, "put_off": 1}
        expect(name_of).to_have_text("in 2 versions")
        expect(rows).to_have_text([
            "a000version 3 of a, behind version 4 of c",
            "b000version 4 of c, its version 4 was superseded",
            "c1231version 4 of c",
        ])  # fmt: skip
        behind = cluster(page, "a")
        expect(behind.locator(".words")).to_have_text("version 3")
        expect(behind).to_have_attribute("aria-label", re.compile("3 of a, behind version 4 of c$"))
        color_of_words = "one => getComputedStyle(one.querySelector('.words')).fill"
        dark = [cluster(page, one).evaluate(color_of_words) for one in ("a", "c")]
        assert dark[0] != dark[1]
        assert has_no_sideways_scroll(page)
        page.locator("#theme").click()
        expect(behind).to_have_attribute("data-behind", "")
        light = [cluster(page, one).evaluate(color_of_words) for one in ("a", "c")]
        assert len({*dark, *light}) == 4
        cluster(page, "c").click()
        expect(fact(page, "clients connected")).to_have_text("12")
        removed = {"version": 5, "by": "a", "removed": True}
        for name in of:
            of[name] = {"configuration": {"version": 5, "by": "a"}}
        of["c"] = {"configuration": removed, "draining": True, "drained": True}
        expect(name_of).to_have_text("clusters")
        expect(cluster(page, "c").locator(".words")).to_have_text("removed")
        expect(page.locator("#cluster .badge")).to_have_text("removed, drained")
        expect(rows.last).to_have_text("c000version 5 of a, removed: it can be ended")
        assert has_no_sideways_scroll(page)


def test_what_another_version_says_of_its_health_is_no_reason_to_stop(opened, expect):
    """A word that the page does not know is shown as well; what is known goes on."""

    def tell():
        return [
            consoles.state_of("a", health="on vacation"),
            consoles.state_of("b", degraded=True),
        ]

    with consoles.console_of("a", [("a", "b")], tell) as url, opened(url) as page:
        expect(cluster(page, "a")).to_have_attribute("data-health", "well")
        expect(cluster(page, "b")).to_have_attribute("data-health", "degraded")
