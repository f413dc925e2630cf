"""Parts of the console's page by themselves, in a real browser, for tests/e2e. A part is given
values at moments that a test chooses, and says what it makes of them.
"""

from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from spillover.apps.node.console_view import cluster_view
from support import told_console as consoles
from support.console_page import open_page

SCRIPTS = Path(__file__).parent / "console_scripts"


def script(name):
    """An async function (load, value) -> what a test is told; `load` gives a module of the page."""
    return (SCRIPTS / f"{name}.js").read_text(encoding="utf-8").strip()


LOAD = script("load")

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
    """What a script returns for the value."""
    return page.evaluate(f"async (given) => ({script})({LOAD}, given)", value)


@pytest.fixture
def run(page):
    """`run(script, value)`: the same in the page of the module."""
    return partial(evaluate, page)


def frame(at_ms, *states):
    """What a page is sent of these clusters."""
    clusters = [cluster_view(one.cluster, one) for one in states]
    return {"at_ms": at_ms, "clusters": clusters, "links": [], "decisions": []}
