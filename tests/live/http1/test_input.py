"""What the HTTP/1.1 client refuses to be given, before it opens anything."""

import pytest

from spillover.live.http1.base_url import STARTS_MAX, BaseUrl
from spillover.live.http1.bearer import bearer_headers
from spillover.live.http1.client import HttpClient
from spillover.model.errors import InputError


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:80", "ftp://h", "http://", "http://h:0", "http://h:99999", "http://h:x"),
        *("http://u:p@h", "http://h?q", "http://h#f", "http://h\r\n", "http://h h", "http://[::1"),
        *("http://@h", "https://", "http://h\t", "http:///x", "http://:80", "HTTP//h"),
    ],
)
def test_bad_base_urls_are_input_errors(url):
    """Anything but http://HOST[:PORT][/PREFIX] is told in one line."""
    with pytest.raises(InputError, match="expected http://HOST") as caught:
        HttpClient(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "port"), [("http://h", 80), ("https://h/x", 443), ("https://h:80", 80)]
)
def test_a_url_without_a_port_means_that_of_its_scheme(url, port):
    assert BaseUrl(url).port == port


@pytest.mark.parametrize(
    ("method", "length", "told"),
    [
        ("GET", 0, b""),
        ("DELETE", 0, b""),
        ("OPTIONS", 0, b""),
        ("GET", 5, b"Content-Length: 5\r\n"),
        *((method, 0, b"Content-Length: 0\r\n") for method in ("PATCH", "POST", "PUT")),
        ("POST", 7, b"Content-Length: 7\r\n"),
    ],
)
def test_a_head_says_how_long_its_body_is_where_it_may_have_one(method, length, told):
    server = BaseUrl("https://h:8443/base/", [(b"Always", b"1")])
    assert (server.host, server.port, server.is_secure) == ("h", 8443, True)
    assert server.url == "https://h:8443/base"
    for headers, lines in (((), b""), ([(b"A", b"b"), (b"C", b"d")], b"A: b\r\nC: d\r\n")):
        start = b"%b /base/x?y HTTP/1.1\r\nHost: h:8443\r\nAlways: 1\r\n" % method.encode()
        for _ in range(2):
            head = server.head(method, "/x?y", headers, length)
            assert head == start + told + lines + b"\r\n"


def test_of_many_paths_a_few_are_remembered_and_all_are_right():
    server = BaseUrl("http://h")
    for number in [*range(10 * STARTS_MAX), *range(10 * STARTS_MAX)]:
        head = server.head("GET", f"/{number}", (), 0)
        assert head == b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number
    assert len(server._starts) <= STARTS_MAX
    assert not BaseUrl("http://h").is_secure


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("CONNECT", "/", ()),
        ("GET / HTTP/1.1\r\nX", "/", ()),
        *(("GET", path, ()) for path in ("", "x", "/ x", "/\r\nX: 1", "/\n", "/\u00e9", "/\0")),
        *(("GET", "/", [(b"X", value)]) for value in (b"1\r\nY: 2", b"1\n", b"\r", b"\0")),
        *(("GET", "/", [(name, b"1")]) for name in (b"", b"X\r\nY", b"X:", b"X Y", b"\xe9")),
        *(("GET", "/", [(name, b"1")]) for name in (b"Host", b"content-length", b"Connection")),
    ],
)
async def test_nothing_can_be_smuggled_into_a_request(method, path, headers):
    """What would not be one plain request on the wire is refused before anything is opened."""
    client = HttpClient("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="expected"):
        client.request(method, path, headers=headers, timeout_s=1)
    assert "connecting=0" in repr(client)


@pytest.mark.parametrize("given", ["", "two words", " padded", "tab\t", "line\n", "\u00e9", 7])
def test_what_can_be_no_secret_is_an_input_error(given):
    """The line does not show it."""
    with pytest.raises(InputError) as caught:
        bearer_headers(given)
    assert str(caught.value) == "token: expected printable ASCII characters without blanks"


def test_a_secret_is_shown_as_it_is_and_one_of_the_environment_without_its_newline(monkeypatch):
    assert bearer_headers("a-secret") == ((b"authorization", b"Bearer a-secret"),)
    monkeypatch.delenv("SPILLOVER_TOKEN", raising=False)
    assert bearer_headers(None) == ()
    monkeypatch.setenv("SPILLOVER_TOKEN", "another\n")
    assert bearer_headers(None) == ((b"authorization", b"Bearer another"),)
