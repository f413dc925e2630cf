"""The console's page in headless Chromium, and where things are on it. For tests of whole nodes."""

import importlib.util
import os
import shutil
from contextlib import contextmanager
from functools import partial

import pytest

LIMIT_MS = 40_000


class Chromium:
    """A browser that is started again where it has died: it is not what is tested."""

    def __init__(self, playwright, path):
        # In containers shared memory is small, and pages die for want of it.
        options = ["--disable-dev-shm-usage"] + ["--no-sandbox"] * (os.getuid() == 0)
        self._launch = partial(
            playwright.chromium.launch, executable_path=path, args=options, timeout=2 * LIMIT_MS
        )
        self._browser = self._launch()

    def new_context(self, **options):
        if not self._browser.is_connected():
            self._browser = self._launch()
        return self._browser.new_context(**options)

    def close(self):
        self._browser.close()


@pytest.fixture(scope="module")
def chromium(require):
    """Debian's Chromium, driven by Playwright."""
    require(importlib.util.find_spec("playwright"), "playwright (dependency group `test`)")
    from playwright import sync_api

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    require(path, "chromium on the PATH (Debian: apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = Chromium(playwright, path)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """`opened(url)`: see `open_page`."""
    return partial(open_page, chromium)


@contextmanager
def open_page(chromium, url, *, width=1280, height=900, secret=None, **options):
    """A page that has drawn something, for `with`. Fails if the browser had anything to complain
    about besides services that do not answer."""
    from playwright.sync_api import expect

    options = {"viewport": {"width": width, "height": height}, **options}
    context = chromium.new_context(**options)
    context.set_default_timeout(LIMIT_MS)
    expect.set_options(timeout=LIMIT_MS)
    page = context.new_page()
    complaints = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text))
    page.goto(f"{url}/console")
    if secret is not None:
        give_secret(page, secret)
    page.locator("#view > *").first.wait_for()
    yield page
    context.close()
    unusual = [said for said in complaints if "Failed to load resource" not in said]
    assert not [said for said in unusual if "net::ERR" not in said], unusual


def give_secret(page, secret):
    """Type the secret of an API token where the page asks for it."""
    page.get_by_label("API token").fill(secret)
    page.get_by_role("button", name="Show").click()


@pytest.fixture
def expect(chromium):
    from playwright.sync_api import expect

    return expect


def cluster(page, name):
    return page.locator(f'.map [data-cluster="{name}"]')


def tile(page, name):
    return page.locator(f'[data-tile="{name}"]')


def fact(page, name):
    return page.locator(f'#cluster dt:text-is("{name}") + dd')


def has_no_sideways_scroll(page):
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    return wide <= shown
