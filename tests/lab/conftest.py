"""How tests look at pages."""

from html.parser import HTMLParser

import pytest

VOID = {"br", "hr", "img", "input", "link", "meta", "source"}


class PageReader(HTMLParser):
    """Reads a page: every tag that opens closes; collects tags, ids, links, sources and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.sources = [], [], [], [], []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.tags.append(tag)
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named["href"]] if "href" in named else []
        self.sources += [named[key] for key in ("src", "srcset") if key in named]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="session")
def read():
    """`read(page)`: what is in it."""
    return PageReader
