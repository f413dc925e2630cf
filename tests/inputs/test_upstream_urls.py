"""The URLs of a handler `http:URL[,URL...]`: what each stands for, and the line for a bad one."""

from __future__ import annotations

import pytest

from spillover.model.upstream_urls import UPSTREAMS_MAX, UpstreamUrl, upstream_urls

URLS = {
    "http://h": ("http://h", "/"),
    "HTTP://Host:80": ("http://host", "/"),
    "http://127.0.0.1:9000/": ("http://127.0.0.1:9000", "/"),
    "http://h:1/a/b/": ("http://h:1", "/a/b/"),
    "http://h:1/A?x=1&y=:%20": ("http://h:1", "/A?x=1&y=:%20"),
    "http://h?x=/": ("http://h", "/?x=/"),
    "http://[::1]:65535/x": ("http://[::1]:65535", "/x"),
    "http://my_service-1.lan": ("http://my_service-1.lan", "/"),
    "https://h": ("https://h", "/"),
    "HTTPS://Host:443/a": ("https://host", "/a"),
    "https://h:80": ("https://h:80", "/"),
}


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("prefix", ["http:", ""])
def test_what_a_url_stands_for(url: str, prefix: str) -> None:
    """The path is posted to as it is written; the prefix may be left out where nothing is lost."""
    if prefix or url.startswith(("http://", "https:")):
        assert upstream_urls(prefix + url) == (UpstreamUrl(*URLS[url]),)


def test_several() -> None:
    found = upstream_urls("http:http://h/a,http://h/b,http://i")
    assert [upstream.name for upstream in found] == ["http://h/a", "http://h/b", "http://i/"]


BAD = {
    "http:": "got an empty URL",
    "http:,": "got an empty URL",
    "http:http://h,,http://i": "got an empty URL",
    "https://": "got 'https://'",
    "http:https:/h": "got 'https:/h'",
    "http:h:1": "got 'h:1'",
    "http:ftp://h": "got 'ftp://h'",
    "http:http://": "got 'http://'",
    "http:http://h:0": "got 'http://h:0'",
    "http:http://h:65536": "got 'http://h:65536'",
    "http:http://h:x": "got",
    "http:http://user@h": "got 'http://user@h'",
    "http:http://h/#x": "got 'http://h/#x'",
    "http:http://h/a b": "got 'http://h/a b'",
    "http:http://h, http://i": "got ' http://i'",
    "http:http://h/\n": "got 'http://h/\\n'",
    "http:http://hé": "got 'http://hé'",
    "http:http://[:::]/": "got 'http://[:::]/'",
    "http:http://[1.2.3.4]/": "got 'http://[1.2.3.4]/'",
    "http:http://h,http://h/": "got 'http://h/' twice",
    "http:" + ",".join(f"http://h:{n + 1}" for n in range(UPSTREAMS_MAX + 1)): "at most 64 URLs",
    "http:ftp://" + "x" * 100: "...",
}


@pytest.mark.parametrize("handler", BAD, ids=[handler[:40] for handler in BAD])
def test_bad_urls(handler: str) -> None:
    """One line that says what was expected and what was there."""
    with pytest.raises(ValueError, match=r"^expected ") as raised:
        upstream_urls(handler)
    message = str(raised.value)
    assert BAD[handler] in message
    assert "\n" not in message
    assert len(message) < 200
