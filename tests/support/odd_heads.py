"""What clients and services write that is a little off, by the rules of `live.http1.rules`:
examples of answers, and of requests. Each answer that is taken has the body `abc`, unless it can
have none.
"""

from spillover.live.http1.rules import FIELDS_MAX, HEAD_LIMIT_BYTES, Rule
from spillover.model.passed import METHOD_LENGTH_MAX
from support.passed_requests import CHUNKED, CHUNKS, get, post

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: 3\r\n"
CODED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
END = b"3\r\nabc\r\n0\r\n\r\n"


def said(*lines, start=OK, body=b"abc"):
    """An answer with these lines."""
    return start + b"".join(line + b"\r\n" for line in lines) + LENGTH + b"\r\n" + body


def framed(*lines, body=b"abc", start=OK):
    """An answer with these lines and no others."""
    return start + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def chunked(size, data=b"abc", end=b"0\r\n\r\n"):
    """An answer in chunks, of which the first has its length written so."""
    return CODED + size + b"\r\n" + data + b"\r\n" + end


def sent(size):
    """A request in chunks of which the first has its length written so."""
    return post(CHUNKED, body=size + b"\r\nhello\r\n0\r\n\r\n")


EXAMPLES = {
    Rule.LF_ALONE: (
        [
            b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
            b"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\nabc",
            b"HTTP/1.1 200 OK\nContent-Length: 3\n\r\nabc",
            b"HTTP/1.1 100 Continue\n\n" + said(),
            CODED + b"3\nabc\n0\n\n",
            CODED + b"3\nabc\r\n0\r\n\n",
            CODED + b"3\r\nabc\n0\r\n\r\n",
            CODED + b"3;a=b\nabc\r\n0\nX: a\nY: b\r\n\n",
        ],
        [
            b"GET / HTTP/1.1\nHost: h\n\n",
            b"GET / HTTP/1.1\r\nHost: h\r\n\n",
            post(CHUNKED, body=b"5\nhello\r\n0\r\n\r\n"),
            post(CHUNKED, body=b"5\r\nhello\n0\r\n\r\n"),
            post(CHUNKED, body=b"5\r\nhello\r\n0\n\n"),
            post(CHUNKED, body=b"5\r\nhello\r\n0\r\nA: b\n\r\n"),
        ],
    ),
    Rule.BLANKS_BEFORE_COLON: (
        [
            said(b"X-A : 1"),
            said(b"X-A \t: 1"),
            framed(b"Content-Length : 3"),
            framed(b"Transfer-Encoding\t: chunked", body=END),
            CODED + b"3\r\nabc\r\n0\r\nX-Sum : 1\r\n\r\n",
        ],
        [get(b"A : b"), get(b"A\t: b"), post(b"Content-Length : 5")],
    ),
    Rule.BLANKS_BEHIND_SIZE: (
        [chunked(b"3 "), chunked(b"3\t"), chunked(b"3      ", end=b"0      \r\n\r\n"),
         chunked(b"3 ; a=b ")],
        [sent(b"5 "), sent(b"5\t")],
    ),
    Rule.LONG_SIZE: (
        [chunked(b"0000000000000003"), chunked(b"0" * 40 + b"3", end=b"0" * 16 + b"\r\n\r\n")],
        [sent(b"0" * 15 + b"5")],
    ),
    Rule.LENGTH_AGAIN: (
        [
            framed(b"Content-Length: 3, 3"),
            framed(b"Content-Length: 3,3 ,\t3"),
            framed(b"Content-Length: 3", b"Content-Length: 3"),
            framed(b"Content-Length: 3", b"content-length: 3, 3"),
        ],
        [post(b"Content-Length: 5, 5"), post(b"Content-Length: 5", b"Content-Length: 5")],
    ),
    Rule.LONG_LENGTH: (
        [framed(b"Content-Length: 00000000000000000003")],
        [post(b"Content-Length: 00000000000000000005")],
    ),
    Rule.OLD_CHUNKS: (
        [framed(b"Transfer-Encoding: chunked", start=b"HTTP/1.0 200 OK\r\n", body=END)],
        [post(CHUNKED, body=CHUNKS, version=b"1.0")],
    ),
    Rule.CONTROL: (
        [said(b"X: a\x01b"), said(b"X: \x1b[0m"), said(b"X: a\x7f"),
         CODED + b"3\r\nabc\r\n0\r\nX-Sum: \x0b1\r\n\r\n"],
        [get(b"A: a\x01b"), get(b"A: a\x7f")],
    ),
    Rule.BLANKS: (
        [said(start=start) for start in (
            b"HTTP/1.1  200 OK\r\n", b"HTTP/1.1 200   OK\r\n", b"HTTP/1.0   404  No  Way\r\n")],
        [b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /   HTTP/1.1\r\nHost: h\r\n\r\n"],
    ),
    Rule.LATER: (
        [said(start=b"HTTP/1.2 200 OK\r\n"), said(start=b"HTTP/1.9 404 No\r\n")],
        [get(version=b"1.2")],
    ),
    Rule.EMPTY_PARTS: (
        [framed(b"Transfer-Encoding: " + coding, body=END) for coding in (
            b"chunked,", b", chunked", b"chunked ,,\t", b"chunked\r\nTransfer-Encoding:")],
        [post(b"Transfer-Encoding: " + coding, body=CHUNKS) for coding in (
            b"chunked,", b",chunked", b"chunked\r\nTransfer-Encoding:")],
    ),
    Rule.NOT_ASCII: (
        [said("X: größe".encode()), said(b"X: \xff")],
        [get("A: größe".encode())],
    ),
    Rule.EXTENSION: (
        [chunked(b'3;a="b;c"'), chunked(b"3 ;a"), chunked(b"3;a=" + b"b" * 1000)], [sent(b"5;a=b")],
    ),
    Rule.NO_REASON: ([said(start=b"HTTP/1.1 200\r\n")], []),
    Rule.NO_HOST: ([], [get(host=b"Host:\r\n"), get(host=b"Host: \t\r\n")]),
    Rule.HOST_IN_TARGET: (
        [],
        [get(target=b"http://i/a"), get(target=b"http://i/a", host=b"Host:\r\n"),
         get(target=b"HTTPS://h:8?b")],
    ),
    Rule.UPGRADE: (
        [],
        [get(b"Connection: Upgrade", b"Upgrade: " + other) for other in (
            b"TLS/1.2", b"TLS/1.0, TLS/1.1", b"h2c", b"h2,h2c", b"HTTP/2.0", b"foo", b"",
            b"h2c,\tWebSocket", b"websocket, h2c")],
    ),
    Rule.TUNNEL: (
        [],
        [get(b"Connection: Upgrade", b"Upgrade: " + other) for other in (
            b"websocket", b"SPDY/3.1,\tWebSocket", b"connect-udp", b"connect-ip")],
    ),
    Rule.LENGTHS_DIFFER: (
        [framed(b"Content-Length: 3", b"Content-Length: 4"), framed(b"Content-Length: 3, 4"),
         framed(b"Content-Length: 3, 03")],
        [post(b"Content-Length: 5", b"Content-Length: 6"), post(b"Content-Length: 5, 6")],
    ),
    Rule.LENGTH_AND_CHUNKS: (
        [said(b"Transfer-Encoding: chunked", body=END),
         said(b"Transfer-Encoding : chunked", body=END),
         said(b"Transfer-Encoding: chunked", body=END, start=b"HTTP/1.0 200 OK\r\n")],
        [post(b"Content-Length: 5", CHUNKED, body=CHUNKS)],
    ),
    Rule.CODING: (
        [framed(b"Transfer-Encoding: " + coding, body=END) for coding in (
            b"chunked, chunked", b"gzip, chunked", b"identity", b"chunked;", b"\x0bchunked",
            b"chunked\r\nTransfer-Encoding: chunked")],
        [post(b"Transfer-Encoding: " + coding, body=CHUNKS) for coding in (
            b"chunked, chunked", b"gzip, chunked", b"identity", b"chunked;", b"\x0bchunked")],
    ),
    Rule.LENGTH: (
        [*[framed(b"Content-Length: " + length) for length in (
            b"+3", b"-3", b"0x3", b"0_3", b"3 3", b"3,", b"\x013")],
         framed(b"Content-Length: 1000000000000003")],
        [post(b"Content-Length: " + length) for length in (
            b"+5", b"0x5", b"0_5", b"5 5", b"1" * 16)],
    ),
    Rule.SIZE: (
        [*[chunked(length) for length in (b"+3", b"0x3", b"0_3", b" 3", b"3 3", b"")],
         chunked(b"10000000000000003")],
        [sent(length) for length in (b"+5", b"0x5", b"0_5", b" 5", b"5 5", b"", b"1" * 16)],
    ),
    Rule.CHUNK_END: (
        [chunked(b"3", data=b"abcd"), chunked(b"3", data=b"a")],
        [post(CHUNKED, body=b"5\r\nhello!\r\n0\r\n\r\n"),
         post(CHUNKED, body=b"5\r\nhell\r\n0\r\n\r\n")],
    ),
    Rule.FOLDED: (
        [said(b"X: a,\r\n b"), said(b"X: a,\r\n\tb"), framed(b"Content-Length:\r\n 3"),
         b"HTTP/1.1 200 OK\nX: a\n b\nContent-Length: 3\n\nabc",
         CODED + b"3\r\nabc\r\n0\r\nX: 1\r\n 2\r\n\r\n"],
        [get(b"A: b\r\n c"), post(CHUNKED, body=b"5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n")],
    ),
    Rule.CR_OR_NUL: (
        [said(b"X: a\rb"), said(b"X: a\0b"), b"HTTP/1.1 200 OK\rContent-Length: 3\r\rabc",
         said(b"X: a\r"), chunked(b"3\r"), chunked(b"3;a\rb"), CODED + b"3\rabc\r\n0\r\n\r\n",
         CODED + b"3\r\nabc\r\n0\r\nX: 1\rY: 2\r\n\r\n"],
        [get(b"A: b\rc"), get(b"A: b\0c"), sent(b"5\r")],
    ),
    Rule.FIELD: (
        [said(b"HTTP 1/1 302"), said(b"Secured by Some :"), said(b": x"), said(b"X(A): 1"),
         said("größe: 1".encode()), said(b"X\x01: 1"), CODED + b"3\r\nabc\r\n0\r\nX\r\n\r\n"],
        [get(b"A"), get(b": b"), get(b"A b: c"), get(b"(A): c")],
    ),
    Rule.FIRST_LINE: (
        [said(start=start) for start in (
            b"http/1.1 200 OK\r\n", b"HTTP/2 200 OK\r\n", b"HTTP/1.10 200 OK\r\n",
            b" HTTP/1.1 200 OK\r\n", b"HTTP/1.1\t200 OK\r\n", b"HTTP/1.1 2000 OK\r\n",
            b"ICY 200 OK\r\n",
            b"\r\nHTTP/1.1 200 OK\r\n", b"HTTP/1.1\x01200 OK\r\n")],
        [b"GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", b"GET / http/1.1\r\nHost: h\r\n\r\n"],
    ),
    Rule.VERSION: (
        [said(start=start) for start in (
            b"HTTP/2.0 200 OK\r\n", b"HTTP/2 200 OK\r\n", b"HTTP/0.9 200 OK\r\n")],
        [get(version=b"2.0"), get(version=b"0.9"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ),
    Rule.LONG: (
        [said(b"X: " + b"a" * HEAD_LIMIT_BYTES), said(*[b"X: a"] * FIELDS_MAX),
         CODED + b"3\r\nabc\r\n0\r\nX: " + b"a" * HEAD_LIMIT_BYTES + b"\r\n\r\n"],
        [get(b"A: " + b"b" * HEAD_LIMIT_BYTES), get(*[b"A: b"] * FIELDS_MAX),
         post(CHUNKED, body=b"5\r\nhello\r\n0\r\nA: " + b"b" * HEAD_LIMIT_BYTES + b"\r\n\r\n")],
    ),
    Rule.SWITCHED: ([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"], []),
    Rule.UNDERLINE: (
        [said(b"Content_Length: 9"), said(b"Transfer_Encoding: chunked")],
        [post(b"Content_Length: 3", b"Content-Length: 5"), get(b"Transfer_Encoding: chunked"),
         get(b"Spillover_Deadline_Ms: 1"), get(b"Server_Timing: a")],
    ),
    Rule.EXPECTATION: (
        [],
        [get(b"Expect: x"), post(b"Content-Length: 5", b"Expect: 100-continue, x")],
    ),
    Rule.HOST: (
        [],
        [get(host=b""), get(b"Host: i"), get(host=b"Host: h i\r\n"), get(host=b"Host: h:x\r\n"),
         get(target=b"http:///", host=b"Host:\r\n"), get(host=b"Host: a@b\r\n")],
    ),
    Rule.FRAGMENT: ([], [get(target=b"/a#b"), get(target=b"/a?b#"), get(target=b"#"), get(target=b"http://h/#a")]),
    Rule.TARGET: ([], [get(target=b"a"), get(target=b"*"), get(target=b"ftp://h/")]),
    Rule.METHOD: (
        [],
        [get(method=b"CONNECT", target=b"h:1"), get(method=b"A" * (METHOD_LENGTH_MAX + 1))],
    ),
}  # fmt: skip
"""Of each rule the answers and the requests."""
