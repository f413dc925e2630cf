"""How the console shows states that a test makes up, since nodes are seldom in them: the page, and
what it is sent, are the product's.
"""

import re

from support import told_console as consoles
from support.console_page import cluster, has_no_sideways_scroll


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
