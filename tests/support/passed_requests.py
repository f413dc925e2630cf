"""Requests as they come to the door of a service, and what the service may see of them: the same
request, or none. Smuggling, framing, and what means something to a hop.

Each case is bytes on a connection. Where a body is passed, it is `hello`.
"""

HOST = b"Host: h\r\n"


def get(*lines, target=b"/", method=b"GET", version=b"1.1", host=HOST):
    """A request without a body."""
    start = b"%b %b HTTP/%b\r\n" % (method, target, version)
    return start + host + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(*lines, body=b"hello", version=b"1.1"):
    """A request with a body, framed by the lines."""
    return get(*lines, method=b"POST", version=version) + body


LENGTH = b"Content-Length: 5"
CHUNKED = b"Transfer-Encoding: chunked"
CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"

REFUSED = {
    # --- lengths ------------------------------------------------------------------------------
    "a length and chunks": (400, post(LENGTH, CHUNKED, body=CHUNKS)),
    "chunks and a length": (400, post(CHUNKED, LENGTH, body=CHUNKS)),
    "two lengths that differ": (400, post(LENGTH, b"Content-Length: 6")),
    "two lengths alike": (400, post(LENGTH, LENGTH)),
    "two lengths in a line": (400, post(b"Content-Length: 5, 5")),
    "two lengths in a line that differ": (400, post(b"Content-Length: 5, 6")),
    "a length with a sign": (400, post(b"Content-Length: +5")),
    "a negative length": (400, post(b"Content-Length: -5")),
    "a length in hexadecimal": (400, post(b"Content-Length: 0x5")),
    "a length with a fraction": (400, post(b"Content-Length: 5.0")),
    "a length with an underscore": (400, post(b"Content-Length: 0_5")),
    "a length with a blank in it": (400, post(b"Content-Length: 5 5")),
    "no length": (400, post(b"Content-Length:")),
    "a length in words": (400, post(b"Content-Length: five")),
    "a length of other digits": (400, post(b"Content-Length: \xd9\xa5")),
    "a length of 20 digits": (400, post(b"Content-Length: 00000000000000000005")),
    "a length of 15 digits": (413, post(b"Content-Length: 999999999999999")),
    # --- codings ------------------------------------------------------------------------------
    "gzip and chunked": (400, post(b"Transfer-Encoding: gzip, chunked", body=CHUNKS)),
    "chunked and gzip": (400, post(b"Transfer-Encoding: chunked, gzip", body=CHUNKS)),
    "chunked twice in a line": (400, post(b"Transfer-Encoding: chunked, chunked", body=CHUNKS)),
    "chunked in two lines": (400, post(CHUNKED, CHUNKED, body=CHUNKS)),
    "chunked and identity in two lines": (
        400,
        post(CHUNKED, b"Transfer-Encoding: identity", body=CHUNKS),
    ),
    "identity": (400, post(b"Transfer-Encoding: identity")),
    "identity and a length": (400, post(b"Transfer-Encoding: identity", LENGTH)),
    "an unknown coding": (400, post(b"Transfer-Encoding: cow", body=CHUNKS)),
    "an empty coding": (400, post(b"Transfer-Encoding:", body=CHUNKS)),
    "xchunked": (400, post(b"Transfer-Encoding: xchunked", body=CHUNKS)),
    "chunked with a comma": (400, post(b"Transfer-Encoding: chunked,", body=CHUNKS)),
    "chunked behind a comma": (400, post(b"Transfer-Encoding: ,chunked", body=CHUNKS)),
    "chunked with a parameter": (400, post(b"Transfer-Encoding: chunked;q=1", body=CHUNKS)),
    "chunked in quotes": (400, post(b'Transfer-Encoding: "chunked"', body=CHUNKS)),
    "chunked with a vertical tab": (400, post(b"Transfer-Encoding: \x0bchunked", body=CHUNKS)),
    "chunked with a form feed": (400, post(b"Transfer-Encoding: chunked\x0c", body=CHUNKS)),
    "chunked with a NUL": (400, post(b"Transfer-Encoding: chunked\0", body=CHUNKS)),
    "chunked with a blank of unicode": (
        400,
        post(b"Transfer-Encoding: chunked\xc2\xa0", body=CHUNKS),
    ),
    "chunked on a folded line": (400, post(b"Transfer-Encoding:\r\n chunked", body=CHUNKS)),
    "a blank before the colon": (400, post(b"Transfer-Encoding : chunked", body=CHUNKS)),
    "a tab before the colon": (400, post(b"Transfer-Encoding\t: chunked", body=CHUNKS)),
    "a coding with an underscore": (400, post(b"Transfer_Encoding: chunked", LENGTH)),
    "a length with underscores in its name": (400, post(b"Content_Length: 3", LENGTH)),
    "chunks in HTTP/1.0": (400, post(CHUNKED, body=CHUNKS, version=b"1.0")),
    # --- chunks -------------------------------------------------------------------------------
    "a chunk's length with a sign": (400, post(CHUNKED, body=b"+5\r\nhello\r\n0\r\n\r\n")),
    "a chunk's length with 0x": (400, post(CHUNKED, body=b"0x5\r\nhello\r\n0\r\n\r\n")),
    "a chunk without a length": (400, post(CHUNKED, body=b"\r\nhello\r\n0\r\n\r\n")),
    "a negative chunk": (400, post(CHUNKED, body=b"-5\r\nhello\r\n0\r\n\r\n")),
    "a chunk's length with a blank before it": (
        400,
        post(CHUNKED, body=b" 5\r\nhello\r\n0\r\n\r\n"),
    ),
    "a chunk's length with a blank behind it": (
        400,
        post(CHUNKED, body=b"5 \r\nhello\r\n0\r\n\r\n"),
    ),
    "a chunk's length with an underscore": (
        400,
        post(CHUNKED, body=b"0_5\r\nhello\r\n0\r\n\r\n"),
    ),
    "a chunk's length of 17 digits": (
        400,
        post(CHUNKED, body=b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
    ),
    "a chunk's line that ends with LF": (400, post(CHUNKED, body=b"5\nhello\r\n0\r\n\r\n")),
    "a chunk that ends with LF": (400, post(CHUNKED, body=b"5\r\nhello\n0\r\n\r\n")),
    "a chunk that ends with CR": (400, post(CHUNKED, body=b"5\r\nhello\r0\r\n\r\n")),
    "a chunk that is longer than told": (400, post(CHUNKED, body=b"4\r\nhello\r\n0\r\n\r\n")),
    "an extension with LF": (400, post(CHUNKED, body=b"5;a\nb\r\nhello\r\n0\r\n\r\n")),
    "an extension with a NUL": (400, post(CHUNKED, body=b"5;a\0\r\nhello\r\n0\r\n\r\n")),
    "an endless extension": (
        400,
        post(CHUNKED, body=b"5;" + b"a" * 4000 + b"\r\nhello\r\n0\r\n\r\n"),
    ),
    "a trailer on a folded line": (
        400,
        post(CHUNKED, body=b"5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n"),
    ),
    "a trailer without a colon": (400, post(CHUNKED, body=b"5\r\nhello\r\n0\r\nA\r\n\r\n")),
    "endless trailers": (
        431,
        post(CHUNKED, body=b"5\r\nhello\r\n0\r\n" + b"A: b\r\n" * 20_000 + b"\r\n"),
    ),
    # --- hosts --------------------------------------------------------------------------------
    "no host": (400, get(host=b"")),
    "two hosts": (400, get(b"Host: i")),
    "two hosts alike": (400, get(b"Host: h")),
    "two hosts in a line": (400, get(host=b"Host: h, i\r\n")),
    "a host with a blank": (400, get(host=b"Host: h i\r\n")),
    "a host with a path": (400, get(host=b"Host: h/i\r\n")),
    "a host with a user": (400, get(host=b"Host: u@h\r\n")),
    "a host with a bad port": (400, get(host=b"Host: h:a\r\n")),
    "a user in the target": (400, get(target=b"http://u@h/")),
    # --- the first line -----------------------------------------------------------------------
    "no target": (400, b"GET HTTP/1.1\r\nHost: h\r\n\r\n"),
    "no version": (400, b"GET /\r\nHost: h\r\n\r\n"),
    "two blanks": (400, b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a tab": (400, b"GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a blank in the target": (400, get(target=b"/a b")),
    "a tab in the target": (400, get(target=b"/a\tb")),
    "a NUL in the target": (400, get(target=b"/a\0b")),
    "a fragment": (400, get(target=b"/a#b")),
    "a target without a slash": (400, get(target=b"a")),
    "another scheme": (400, get(target=b"file:///etc/passwd")),
    "a star with GET": (400, get(target=b"*")),
    "a method with a blank": (400, b" GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a method with a colon": (400, get(method=b"GE:T")),
    "a method of 65 letters": (501, get(method=b"A" * 65)),
    "CONNECT": (501, get(method=b"CONNECT", target=b"h:443")),
    "CONNECT with a path": (501, get(method=b"CONNECT")),
    "a blank behind the version": (400, b"GET / HTTP/1.1 \r\nHost: h\r\n\r\n"),
    "a version in lower case": (400, b"GET / http/1.1\r\nHost: h\r\n\r\n"),
    "HTTP/2 as if it were HTTP/1": (505, get(version=b"2.0")),
    "the preface of HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/0.9": (400, b"GET /\r\n\r\n"),
    "a version of three digits": (400, get(version=b"1.10")),
    # --- lines --------------------------------------------------------------------------------
    "lines that end with LF": (400, b"GET / HTTP/1.1\nHost: h\n\n"),
    "a line that ends with LF": (400, b"GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n"),
    "a line that ends with CR": (400, b"GET / HTTP/1.1\r\nHost: h\rA: b\r\n\r\n"),
    "a CR in a value": (400, get(b"A: b\rContent-Length: 5")),
    "a NUL in a value": (400, get(b"A: b\0c")),
    "a bell in a value": (400, get(b"A: \x07")),
    "a DEL in a value": (400, get(b"A: \x7f")),
    "a folded line": (400, get(b"A: b\r\n c")),
    "a folded line by a tab": (400, get(b"A: b\r\n\tc")),
    "a folded first line": (400, b"GET / HTTP/1.1\r\n Host: h\r\nHost: h\r\n\r\n"),
    "a line without a colon": (400, get(b"A")),
    "a line without a name": (400, get(b": b")),
    "a name with a blank": (400, get(b"A b: c")),
    "a name with a NUL": (400, get(b"A\0: c")),
    "a name that is not ASCII": (400, get("Ä: c".encode())),
    "a name in brackets": (400, get(b"(A): c")),
    "257 lines": (431, get(*[b"A: b"] * 257)),
    "a head of 1 MiB": (431, get(b"A: " + b"b" * 1_048_576)),
    # --- what hops say ------------------------------------------------------------------------
    "another expectation": (417, post(LENGTH, b"Expect: the-moon")),
    "two expectations": (417, post(LENGTH, b"Expect: 100-continue, the-moon")),
    "websocket": (501, get(b"Connection: Upgrade", b"Upgrade: websocket")),
    "a key with underscores": (400, get(b"Idempotency_Key: a")),
    "a deadline with underscores": (400, get(b"Spillover_Deadline_Ms: 1")),
    "an address with underscores": (400, get(b"X_Forwarded_For: 1.2.3.4")),
    "a deadline that is none": (422, get(b"Spillover-Deadline-Ms: soon")),
    "two keys": (422, get(b"Idempotency-Key: a", b"Idempotency-Key: b")),
    "an empty key": (422, get(b"Idempotency-Key:")),
}
"""By name: the status that is said, and the request. The service hears nothing of it."""

SEEN = {
    # What a service sees of the first line, of the headers (those of the way left out), and of the
    # body.
    "as it came": (get(b"A: b"), b"GET / HTTP/1.1", [HOST[:-2], b"A: b"], b""),
    "the order, the case and repeated names": (
        get(b"x-B: 1", b"X-a: 2", b"X-B: 3", b"x-b:4"),
        b"GET / HTTP/1.1",
        [HOST[:-2], b"x-B: 1", b"X-a: 2", b"X-B: 3", b"x-b: 4"],
        b"",
    ),
    "empty values": (get(b"A:", b"B: "), b"GET / HTTP/1.1", [HOST[:-2], b"A: ", b"B: "], b""),
    "bytes in values": (
        get(b"A: \xff\x80\tb"),
        b"GET / HTTP/1.1",
        [HOST[:-2], b"A: \xff\x80\tb"],
        b"",
    ),
    "blanks around a value": (get(b"A: \t b \t"), b"GET / HTTP/1.1", [HOST[:-2], b"A: b"], b""),
    "an unknown method": (get(method=b"BREW"), b"BREW / HTTP/1.1", [HOST[:-2]], b""),
    "a method in lower case": (get(method=b"get"), b"get / HTTP/1.1", [HOST[:-2]], b""),
    "a path that is not ASCII": (
        get(target="/ä".encode()),
        "GET /ä HTTP/1.1".encode(),
        [HOST[:-2]],
        b"",
    ),
    "a path as it is": (
        get(target=b"//a/../%2e%2E/%00;b?c=%zz&&d[]=|\\"),
        b"GET //a/../%2e%2E/%00;b?c=%zz&&d[]=|\\ HTTP/1.1",
        [HOST[:-2]],
        b"",
    ),
    "OPTIONS of all": (
        get(method=b"OPTIONS", target=b"*"),
        b"OPTIONS * HTTP/1.1",
        [HOST[:-2]],
        b"",
    ),
    "absolute": (get(target=b"http://h/a?b"), b"GET /a?b HTTP/1.1", [HOST[:-2]], b""),
    "absolute without a path": (get(target=b"HTTP://H"), b"GET / HTTP/1.1", [HOST[:-2]], b""),
    "another host in the target": (
        get(target=b"http://i:8/"),
        b"GET / HTTP/1.1",
        [b"Host: i:8"],
        b"",
    ),
    "a host in the target alone": (
        get(target=b"http://i/", host=b"Host:\r\n"),
        b"GET / HTTP/1.1",
        [b"Host: i"],
        b"",
    ),
    "absolute with a query alone": (
        get(target=b"http://h?b"),
        b"GET /?b HTTP/1.1",
        [HOST[:-2]],
        b"",
    ),
    "lines before the first": (b"\r\n\r\n" + get(), b"GET / HTTP/1.1", [HOST[:-2]], b""),
    "a body by length": (post(LENGTH), b"POST / HTTP/1.1", [HOST[:-2], LENGTH], b"hello"),
    "a body of nothing": (
        post(b"Content-Length: 0", body=b""),
        b"POST / HTTP/1.1",
        [HOST[:-2], b"Content-Length: 0"],
        b"",
    ),
    "a length with a zero before it": (
        post(b"Content-Length: 05"),
        b"POST / HTTP/1.1",
        [HOST[:-2], b"Content-Length: 05"],
        b"hello",
    ),
    "a body after GET": (
        get(LENGTH) + b"hello",
        b"GET / HTTP/1.1",
        [HOST[:-2], LENGTH],
        b"hello",
    ),
    "a body in chunks": (
        post(CHUNKED, body=b"1\r\nh\r\n04;a=b\r\nello\r\n0\r\n\r\n"),
        b"POST / HTTP/1.1",
        [HOST[:-2], LENGTH],
        b"hello",
    ),
    "chunks in capitals": (
        post(b"transfer-encoding: CHUNKED", body=CHUNKS),
        b"POST / HTTP/1.1",
        [HOST[:-2], LENGTH],
        b"hello",
    ),
    "a trailer that looks like a key": (
        post(CHUNKED, body=b"5\r\nhello\r\n0\r\nIdempotency-Key: a\r\nHost: i\r\n\r\n"),
        b"POST / HTTP/1.1",
        [HOST[:-2], LENGTH],
        b"hello",
    ),
    "POST without a body": (
        get(method=b"POST"),
        b"POST / HTTP/1.1",
        [HOST[:-2]],
        b"",
    ),
    "a body that is asked for": (
        post(LENGTH, b"Expect: 100-continue"),
        b"POST / HTTP/1.1",
        [HOST[:-2], LENGTH],
        b"hello",
    ),
    "what means something to a hop": (
        get(
            b"Connection: close, X-Mine",
            b"X-Mine: a",
            b"Keep-Alive: timeout=5",
            b"Proxy-Connection: keep-alive",
            b"TE: gzip",
            b"Trailer: A",
            b"Proxy-Authorization: Basic a",
        ),
        b"GET / HTTP/1.1",
        [HOST[:-2]],
        b"",
    ),
    "what may not be named": (
        get(
            b"Connection: Host, Cookie, Authorization, Idempotency-Key, close",
            b"Cookie: a",
            b"Authorization: b",
            b"Idempotency-Key: c",
        ),
        b"GET / HTTP/1.1",
        [HOST[:-2], b"Cookie: a", b"Authorization: b", b"Idempotency-Key: c"],
        b"",
    ),
    "a length that is named": (
        post(LENGTH, b"Connection: Content-Length"),
        b"POST / HTTP/1.1",
        [HOST[:-2], LENGTH],
        b"hello",
    ),
    "trailers are welcome": (
        get(b"TE: trailers, deflate", b"Connection: TE"),
        b"GET / HTTP/1.1",
        [HOST[:-2], b"TE: trailers", b"Connection: TE"],
        b"",
    ),
    "what is ours": (
        get(b"Spillover-Type: default", b"spillover-path: a,b", b"Spillover-Deadline-Ms: 5000"),
        b"GET / HTTP/1.1",
        [HOST[:-2]],
        b"",
    ),
    "TLS is not asked for": (
        get(b"Connection: Upgrade", b"Upgrade: TLS/1.2"),
        b"GET / HTTP/1.1",
        [HOST[:-2]],
        b"",
    ),
    "websocket beside h2c is not asked for": (
        get(b"Connection: upgrade", b"Upgrade: h2c, websocket"),
        b"GET / HTTP/1.1",
        [HOST[:-2]],
        b"",
    ),
    "h2c is not asked for": (
        get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAM"),
        b"GET / HTTP/1.1",
        [HOST[:-2]],
        b"",
    ),
    "traces": (
        get(b"traceparent: 00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"tracestate: x=y"),
        b"GET / HTTP/1.1",
        [
            HOST[:-2],
            b"traceparent: 00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01",
            b"tracestate: x=y",
        ],
        b"",
    ),
    "codings and ranges": (
        get(b"Accept-Encoding: gzip, br", b"Range: bytes=0-1", b'If-None-Match: "a"'),
        b"GET / HTTP/1.1",
        [HOST[:-2], b"Accept-Encoding: gzip, br", b"Range: bytes=0-1", b'If-None-Match: "a"'],
        b"",
    ),
    "HTTP/1.0": (get(b"A: b", version=b"1.0"), b"GET / HTTP/1.1", [HOST[:-2], b"A: b"], b""),
    "another underscore": (get(b"X_Mine: a"), b"GET / HTTP/1.1", [HOST[:-2], b"X_Mine: a"], b""),
}
"""By name: the request, and the first line, the headers and the body that the service sees."""

OF_THE_WAY = (
    b"forwarded",
    b"via",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"spillover-request-id",
    b"spillover-deadline-ms",
)
"""What doors and nodes add."""


def without_way(lines):
    """The lines of a head without those."""
    return [line for line in lines if line.partition(b":")[0].lower() not in OF_THE_WAY]
