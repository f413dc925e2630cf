"""What operators are told of requests at the door of a service: a line in the log, and counters."""

import logging
from types import SimpleNamespace

import pytest

from spillover.live.process.logs import REQUESTS_LOGGER
from spillover.model.routes import Route
from support.federation import until
from support.passed_requests import LENGTH, get, post
from support.proxy_doors import counted, in_front

SECRET = b"/v1/chat?key=secret"
ROUTES = (Route(path="/v1/"), Route(path="/beside", unqueued=True))
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"


def chat(*lines):
    return post(*lines).replace(b"POST / ", b"POST %b " % SECRET, 1)


async def cut(talk, *_):
    await talk.say(CHUNKED)
    talk.reset()


async def close(talk, *_):
    talk.reset()


async def stay(talk, *_):
    await talk.until_closed()


async def stand_still(talk, *_):
    await talk.say(CHUNKED)
    await talk.until_closed()


def status(code):
    return b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nno" % code


SCENES = {
    # name: (answer, request, line, failures (outcome, cause), what the upstream came to)
    "whole": (status(200), chat(LENGTH), {"status": 200, "end": "whole", "outcome": "done"},
              None, "done"),
    "of the client's fault": (status(404), chat(LENGTH),
                              {"status": 404, "end": "whole", "outcome": "done"}, None, "done"),
    "a status": (status(500), chat(LENGTH),
                 {"status": 500, "end": "whole", "outcome": "failed", "cause": "upstream_status"},
                 "failed", "upstream_status"),
    "no answer": (close, chat(LENGTH),
                  {"status": 502, "outcome": "failed", "cause": "connection"},
                  "failed", "connection"),
    "nonsense": (b"hello\r\n\r\n", chat(LENGTH),
                 {"status": 502, "outcome": "failed", "cause": "upstream_answer"},
                 "failed", "upstream_answer"),
    "cut off": (cut, chat(LENGTH),
                {"status": 200, "end": "truncated", "outcome": "failed", "cause": "connection"},
                "failed", "connection"),
    "too late": (stay, chat(LENGTH, b"Spillover-Deadline-Ms: 300"),
                 {"status": 504, "outcome": "expired", "cause": "timeout"}, "expired", "stopped"),
    "stands still": (stand_still, chat(LENGTH),
                     {"status": 200, "end": "truncated", "outcome": "failed", "cause": "timeout"},
                     "failed", "timeout"),
}  # fmt: skip

SLOW = ("stands still", 1)
"""It takes two seconds, and "cut off" ends the same on its way home."""


def line_of(caplog):
    (record,) = [one for one in caplog.records if one.name == REQUESTS_LOGGER]
    return SimpleNamespace(text=str(record.msg), fields=record.msg.fields)


@pytest.mark.parametrize(
    ("scene", "hops"),
    [(scene, hops) for scene in SCENES for hops in (0, 1) if (scene, hops) != SLOW],
)
async def test_what_came_of_a_request_and_why_is_told(caplog, scene, hops):
    """Where it ran elsewhere, too; and no secret of its query."""
    answer, request, line, failed, end = SCENES[scene]
    line = dict(line)
    cause = line.get("cause")
    if hops and scene == "too late":
        line["cause"] = cause = "neighbor"  # which nobody has asked yet
    async with in_front(hops, cluster={"routes": ROUTES, "passed_idle_ms": 300.0}) as here:
        here.service.answer = answer
        with caplog.at_level(logging.INFO, REQUESTS_LOGGER):
            read = await here.ask(request, "POST")
            await until(lambda: REQUESTS_LOGGER in [one.name for one in caplog.records])
        told = line_of(caplog)
        assert told.fields | line == told.fields
        fields = {"method": "POST", "path": "/v1/chat", "route": "/v1/", "received_bytes": 5}
        assert told.fields | fields == told.fields
        assert told.fields["sent_bytes"] == (0 if read.status in (502, 504) else len(read.body))
        assert ("first_byte_ms" in told.fields) == ("end" in line)
        assert "cause" in line or "cause" not in told.fields
        assert told.fields["total_ms"] >= told.fields.get("first_byte_ms", 0.0)
        assert "secret" not in told.text
        knows_service = not hops and scene != "too late"  # of another site's it is not told
        assert told.fields.get("upstream") == (here.service.url + "/" if knows_service else None)
        if failed is None or "end" in line:
            assert told.fields["hops"] == hops
        home, runs = here["a"], here["ab"[hops]]
        told_status = f"{read.status // 100}xx"
        assert counted(home, "http_requests_total") == {("POST", "/v1/", told_status): 1}
        assert counted(home, "http_received_bytes_total") == {("/v1/",): 5}
        assert counted(home, "failures_total") == ({(cause, failed): 1} if failed else {})
        await until(lambda: counted(runs, "upstream_requests_total"))
        assert counted(runs, "upstream_requests_total") == {(end, here.service.url + "/"): 1}
        assert counted(runs, "upstream_up") == {(here.service.url + "/",): 1}


@pytest.mark.parametrize(
    ("request_", "line", "count"),
    [
        (b"BREW /v1/x HTTP/1.1\r\nHost: h\r\n\r\n",
         {"method": "BREW", "path": "/v1/x", "status": 200}, ("other", "/v1/", "2xx")),
        (get(method=b"GE:T"), {"status": 400, "outcome": "refused", "cause": "malformed"},
         ("other", "other", "4xx")),
        (get(b"Spillover-Deadline-Ms: soon"), {"status": 422, "outcome": "refused",
         "cause": "invalid", "path": "/"}, ("GET", "other", "4xx")),
        (get(target=b"/beside"), {"route": "/beside", "status": 200, "outcome": "done",
         "end": "whole"}, ("GET", "/beside", "2xx")),
        (get(target=b"/v1/" + b"x" * 5000), {"path": "/v1/" + "x" * 196 + "..."},
         ("GET", "/v1/", "2xx")),
    ],
)  # fmt: skip
async def test_what_is_never_decided_is_told_too(caplog, request_, line, count):
    """Labels are those of the configuration and of a fixed set, whatever clients send."""
    async with in_front(cluster={"routes": ROUTES}) as here:
        with caplog.at_level(logging.INFO, REQUESTS_LOGGER):
            await here.ask(request_)
            await until(lambda: REQUESTS_LOGGER in [one.name for one in caplog.records])
        told = line_of(caplog).fields
        assert told | line == told
        assert counted(here["a"], "http_requests_total") == {count: 1}


async def test_without_the_option_no_line_is_made(caplog):
    async with in_front(cluster={"routes": ROUTES}) as here:
        await here.ask(chat(LENGTH), "POST")
        assert counted(here["a"], "http_requests_total") == {("POST", "/v1/", "2xx"): 1}
    assert not [one for one in caplog.records if one.name == REQUESTS_LOGGER]
