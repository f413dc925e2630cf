"""Parts of the console's page by themselves, in a real browser, for tests/e2e. A part is given
values at moments that a test chooses, and says what it makes of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

import pytest

from spillover.apps.node.console_view import cluster_view
from support import told_console as consoles
from support.console_page import open_page

LOAD = """async (name) => {
  const base = document.querySelector("script[type=module]").src;
  return import(new URL(`${name}.js`, base));
}"""
"""A module of the page."""

LINK = {"cut": False, "loss": 0.0, "delay_ms": 1.0}


@contextmanager
def page_at_rest(chromium):
    """A page of one cluster at rest."""

    def tell():
        return [consoles.state_of("a")]

    with consoles.console_of("a", [], tell) as url, open_page(chromium, url) as page:
        yield page


@pytest.fixture(scope="module")
def page(chromium):
    """One for all tests of a module that leave nothing behind."""
    with page_at_rest(chromium) as page:
        yield page


def evaluate(page, script, value=None):
    """What an async function of LOAD and the value returns."""
    return page.evaluate(f"async (given) => ({script})({LOAD}, given)", value)


@pytest.fixture
def run(page):
    """`run(script, value)`: the same in the page of the module."""
    return partial(evaluate, page)


def frame(at_ms, *states):
    """What a page is sent of these clusters."""
    clusters = [cluster_view(one.cluster, one) for one in states]
    return {"at_ms": at_ms, "clusters": clusters, "links": [], "decisions": []}
