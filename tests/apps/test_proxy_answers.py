"""Answers of a service through its door: as they are, as they come, and those that lie."""

import pytest

from spillover.model.routes import Route
from support.federation import turn, until
from support.passed_requests import get
from support.proxy_doors import doors, in_front, told

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

HOPS = pytest.mark.parametrize("hops", [0, 1])
"""Where what is said must not depend on the way."""


FEW = 2
"""Failures after which a neighbor is not degraded yet."""


@HOPS
async def test_the_answer_comes_as_it_is(hops):
    answers = {
        b"HTTP/1.1 203 Odd reason\r\nX-a: 1\r\nset-cookie: b\r\nSet-Cookie: c\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x00": b"\x1f\x8b\x00",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n": b"abc",
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\n"
        b"Content-Length: 2\r\n\r\nab": b"ab",
        b"HTTP/1.1 204 No Content\r\n\r\n": b"",
        b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 99\r\n\r\n': b"",
        b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 1\r\n\r\nx": b"x",
        b"HTTP/1.1 429 Much\r\nContent-Length: 1\r\n\r\nx": b"x",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\nx": b"x",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK: b"ok",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n": b"",
    }
    async with in_front(hops) as here:
        for answer, body in answers.items():
            here.service.answer = answer
            before = len(here.service.seen)
            read = await here.ask(get())
            final = answer[answer.rindex(b"HTTP/1.1") :]
            start, *lines = final.partition(b"\r\n\r\n")[0].split(b"\r\n")
            assert read.start == start
            kept = [line for line in lines if not line.startswith(b"Transfer-Encoding")]
            assert [b"%b: %b" % field for field in read.fields][: len(kept)] == kept
            assert (read.body, read.is_whole) == (body, True)
            assert read.get(b"spillover-path") == "a,b"[: 1 + 2 * hops]
            assert len(here.service.seen) == before + 1, "it was retried"


@HOPS
async def test_a_stream_is_the_same_however_often_its_head_has_come(hops):
    """Its head is known then, whoever asks: by HTTP/1.0, for trailers, for the head alone."""
    coded = b"HTTP/1.1 200 OK\r\nX: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = b"2\r\nab\r\n", b"1\r\nc\r\n0\r\nSum: 6\r\n\r\n"

    async def in_pieces(talk, head, _):
        await talk.say(coded + (b"" if head.startswith(b"HEAD") else pieces[0]))
        if not head.startswith(b"HEAD"):
            await turn()
            await talk.say(pieces[1])
        return True

    takes = b"TE: trailers", b"Connection: TE"
    async with in_front(hops) as here:
        here.service.answer = in_pieces
        for _ in range(3):
            read = await here.ask(get())
            assert (read.status, read.get(b"x"), read.body) == (200, "1", b"abc")
            assert read.get(b"transfer-encoding") == "chunked"
            assert (read.is_whole, read.trailers) == (True, ())
            assert (await here.ask(get(*takes))).trailers == ((b"Sum", b"6"),)
            old = await here.ask(get(version=b"1.0"))
            assert (old.body, old.get(b"transfer-encoding")) == (b"abc", "")
            head = await here.ask(get(method=b"HEAD"), method="HEAD")
            assert (head.status, head.get(b"x"), head.body) == (200, "1", b"")


@pytest.mark.parametrize("routes", [(), (Route(path="/", unqueued=True),)])
async def test_early_hints_come_before_the_answer_to_who_can_read_them(routes):
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: X\r\nX: y\r\n\r\n"
    async with in_front(cluster={"routes": routes}) as here:
        here.service.answer = b"HTTP/1.1 100 Continue\r\n\r\n" + 2 * hints + OK
        client = await here.client()
        for _ in range(2):  # the next one on the same connection, too
            client.writer.write(get())
            for _ in range(2):
                read = await client.answer()
                assert (read.start, read.fields) == (
                    b"HTTP/1.1 103 Early Hints", ((b"Link", b"</a>"),)
                )  # fmt: skip
            read = await client.answer()
            assert (read.status, read.body, read.is_whole) == (200, b"ok", True)
        assert (await here.ask(get(version=b"1.0"))).status == 200


@HOPS
async def test_a_location_does_not_lead_past_the_door(hops):
    """Services make it of the host that they are asked for and the port that they listen on."""
    async with in_front(hops) as here:
        own = here.service.url
        port = own.rpartition(":")[2]
        for said, location in (
            (f"{own}/a/?b#c", "/a/?b#c"),
            (own.upper(), "/"),
            (f"{own}?b", "/?b"),
            (f"http://door.example:{port}/a/", "/a/"),
            (f"{own}//evil.example/", "/.//evil.example/"),
            (f"{own}/\t/evil.example/", "/./\t/evil.example/"),
            (f"{own}/\\evil.example/", "/./\\evil.example/"),
            *[(same, same) for same in (
                f"https://door.example:{port}/", "http://door.example:1/", "http://door.example/",
                f"http://else.example:{port}/", f"http://u@door.example:{port}/", "/a", "a", "",
            )],
        ):  # fmt: skip
            line = f"Location: {said}".encode()
            here.service.answer = b"HTTP/1.1 301 Moved\r\n%b\r\nContent-Length: 0\r\n\r\n" % line
            for host in (b"door.example:8201", b"other.example"):
                read = await here.ask(get(host=b"Host: %b\r\n" % host))
                is_moved = location != said and (b"door" in host or "door" not in said)
                assert read.get(b"location") == (location if is_moved else said), (said, host)


@HOPS
async def test_an_answer_that_ends_with_its_connection(hops):
    async def close(talk, *_):
        await talk.say(b"HTTP/1.1 200 OK\r\n\r\nabc", b"def")
        return False

    async with in_front(hops) as here:
        here.service.answer = close
        read = await here.ask(get())
        assert (read.body, read.is_whole) == (b"abcdef", True)
        assert read.get(b"transfer-encoding") == "chunked"
        read = await here.ask(get(version=b"1.0"))
        assert (read.body, read.get(b"connection")) == (b"abcdef", "close")


@HOPS
async def test_trailers_where_both_sides_can(hops):
    async with in_front(hops) as here:
        here.service.answer = (
            b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nab\r\n0\r\nX-Sum: 1\r\n\r\n"
        )
        read = await here.ask(get(b"TE: trailers", b"Connection: TE"))
        assert (read.body, read.trailers, read.get(b"trailer")) == (
            b"ab",
            ((b"X-Sum", b"1"),),
            "X-Sum",
        )
        read = await here.ask(get())
        assert (read.body, read.trailers, read.get(b"trailer")) == (b"ab", (), "")


@HOPS
async def test_a_service_that_lies_before_anything_begins(hops):
    async def hang_up(talk, *_):
        talk.reset()

    lies = {
        "no HTTP": b"220 hello\r\n\r\n",
        "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "a length and chunks": (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        "interim answers for ever": b"HTTP/1.1 103 Early\r\n\r\n" * 1000,
        "a head of 1 MiB": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 1_048_576 + b"\r\n\r\n",
        "another protocol": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "a reset": hang_up,
    }
    async with in_front(hops) as here:
        # Through a hop those that say the most.
        for name in ("interim answers for ever", "a head of 1 MiB") if hops else lies:
            lie = lies[name]
            here.service.answer = lie
            before = len(here.service.seen)
            client = await here.client()
            read = await client.ask(get())
            while read.status < 200:
                read = await client.answer()
            assert (read.status, told(read)["reason"]) == (502, "handler_failed"), name
            # Twice at once, and twice a moment later, where nothing has come: it is a GET.
            times = 4 if lie is hang_up else 1
            assert len(here.service.seen) == before + times, name
            here.service.answer = OK
            assert (await here.ask(get())).body == b"ok", name


@HOPS
async def test_what_begins_and_does_not_come_whole_is_reset(hops):
    async def begin(talk, head, _):
        lie = LIES[head.split(b" ")[1][1:].decode()]
        await talk.say(lie)
        return False

    LIES = {  # noqa: N806 - a table
        "short": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "bad-chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        "bad-trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n: a\r\n\r\n",
    }
    async with in_front(hops) as here:
        here.service.answer = begin
        versions = (b"1.1",) if hops else (b"1.1", b"1.0")
        names = list(LIES)[: FEW if hops else None]
        for name in names:
            for version in versions:
                client = await here.client()
                read = await client.ask(get(target=b"/" + name.encode(), version=version))
                # What is seen to be bad along with the head has never begun.
                assert read.status == 502 or not read.is_whole, name
        await until(lambda: here["a"].ledger.home["failed"] == len(names) * len(versions))
        assert here["a"].ledger.home["done"] == 0


@HOPS
async def test_a_client_that_never_reads_stops_the_service(hops):
    async with in_front(hops) as here:
        sent = 0

        async def endless(talk, *_):
            nonlocal sent
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
            piece = b"x" * 65_536
            while sent < 1_073_741_824:
                await talk.say(piece)
                sent += len(piece)

        here.service.answer = endless
        client = await here.client(limit=1)
        client.writer.transport.pause_reading()
        client.writer.write(get())
        last = -1

        async def stands_still():
            nonlocal last
            before, last = last, sent
            await turn(0.05)
            return sent == before and sent > 0

        await until(stands_still)
        assert sent < 16 * 2**20 * (1 + hops), "what the kernel takes, and little more"
        (connection,) = here.doors["a"].connections
        assert connection.transport.get_write_buffer_size() < 1_048_576
        client.close()
        await until(lambda: here["a"].ledger.home["cancelled"] == 1)


BUSY = b"HTTP/1.1 429 Much\r\nRetry-After: 0\r\nX-Mine: a\r\nContent-Length: 4\r\n\r\nbusy"
NOT_RUN = {"not_run_statuses": (429,)}


async def test_a_status_that_says_not_run_is_decided_again_elsewhere():
    """Where the operator says so: at the next upstream, then at the neighbor."""

    async def check(here):
        async def first_says_no(talk, *_):
            await talk.say(BUSY if len(here.service.seen) < 3 else OK)
            return True

        here.service.answer = first_says_no
        read = await here.ask(get())
        assert (read.status, read.body, read.get(b"spillover-path")) == (200, b"ok", "a,b")
        assert len(here.service.seen) == 3
        assert here["a"].ledger.home["done"] == 1

    async with doors("a", "b", handler="proxy:{url},{other}", cluster=NOT_RUN) as here:
        await check(here)


@pytest.mark.parametrize("ids", [("a",), ("a", "b")], ids=len)
@pytest.mark.parametrize("size", [4, 20_000, 100_000])
async def test_where_nobody_else_takes_it_the_answer_is_passed_as_it_is(ids, size):
    """One that is longer than what is held back is passed at once."""
    async with doors(*ids, cluster=NOT_RUN) as here:
        body = b"x" * size
        here.service.answer = (
            b"HTTP/1.1 429 Much\r\nX-Mine: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)
        )
        read = await here.ask(get())
        assert (read.start, read.get(b"x-mine")) == (b"HTTP/1.1 429 Much", "a")
        assert (read.body, read.is_whole, read.get(b"spillover-path")) == (body, True, "a")
        assert len(here.service.seen) == (len(ids) if size == 4 else 1)
        ledger = here["a"].ledger.home
        assert (ledger["accepted"], ledger["failed"] + ledger["done"]) == (1, 1)
        assert here["a"].shell.requests.relays.ends["whole"] == 1
        # Its servers are free again for what the service does take.
        here.service.answer = OK
        assert (await here.ask(get())).body == b"ok"
