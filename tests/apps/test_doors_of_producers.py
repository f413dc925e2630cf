"""Producers of the queue, and lease members, with API tokens: their tables of doors, and that
producers and clients show what is asked for. How a table is gone by is tested in `test_doors`."""

import asyncio
import json
import logging
from dataclasses import replace
from itertools import product

import httpx
import pytest

from spillover.apps.http.access import ApiTokens
from spillover.apps.http.audit import AUDIT_LOGGER
from spillover.apps.queue.doors import DOORS, TABLE
from spillover.client import Rejected, consume, produce
from spillover.model.access import Role
from support.api_tokens import SECRETS, access_of_tests, shown_by, tokens_of_tests
from support.doors import expected, filled, verbs_of
from support.loop import until
from support.queue_producers import producers

CALLERS = (None, "wrong", "submitter", "reader", "operator")
SHUT = ("unauthenticated", "forbidden")


@pytest.fixture(autouse=True)
def _no_token_of_ones_own(monkeypatch):
    monkeypatch.delenv("SPILLOVER_TOKEN", raising=False)


@pytest.mark.slow
async def test_every_door_of_a_producer_is_open_to_those_it_is_for_and_to_nobody_else():
    async with (
        producers(1, access=access_of_tests()) as (one,),
        httpx.AsyncClient(base_url=one.url, trust_env=False) as client,
    ):
        knocks = product(
            CALLERS, [(path, verb) for path in DOORS for verb in verbs_of(path, DOORS)]
        )
        for caller, (path, verb) in knocks:
            if caller == "wrong" and verb not in DOORS[path]:
                continue  # as whoever shows none
            headers = [*shown_by(caller), (b"spillover-deadline-ms", b"1")]
            async with client.stream(verb, filled(path), headers=headers) as answer:
                status, reason = answer.status_code, None
                if status in (401, 403) and verb != "HEAD":
                    reason = json.loads(await answer.aread())["reason"]
                told = expected(caller, path, verb, DOORS)
                told = told if told in SHUT else None
                if verb == "HEAD":
                    assert (status in (401, 403)) == (told is not None), (path, caller)
                else:
                    assert (reason if reason in SHUT else None) == told, (verb, path, caller)
        described = (await client.get("/openapi.json")).json()
        for path, operations in described["paths"].items():
            for verb, operation in operations.items():
                need = (TABLE.needs_of(path) or {}).get(verb.upper())
                assert need is not None, path
                assert ("security" in operation) == isinstance(need, Role), path
        paths = [route.path for route in one.server.config.app.cold.routes]
        assert not [path for path in paths if TABLE.needs_of(path) is None]


def test_who_only_looks_sees_no_object_and_changes_nothing():
    """As services/docs/queue.md has it; by name, since the table says what it says."""
    roles = {(verb, path): role for path, needs in DOORS.items() for verb, role in needs.items()}
    named = {
        Role.SUBMIT: ("POST /objects", "GET /objects/{grant}", "POST /take", "POST /grants/{call}"),
        Role.READ: ("GET /state", "GET /dead", "GET /explain/{name}"),
        Role.OPERATE: (
            *("GET /dead/{number}", "POST /dead/{number}", "DELETE /dead/{number}"),
            *("POST /admin/drain", "POST /admin/resume"),
        ),
    }
    found = {role: [roles[tuple(door.split())] for door in doors] for role, doors in named.items()}
    assert found == {role: [role] * len(doors) for role, doors in named.items()}
    assert {verb for (verb, _), role in roles.items() if role is Role.READ} == {"GET"}


async def test_objects_go_from_producer_to_producer_and_to_who_shows_an_api_token():
    access, shown = access_of_tests(), shown_by("submitter")
    them = producers(3, access=access, shown=shown)
    async with them as running, produce(running[2].url, token=SECRETS["submitter"]) as queue:
        await queue.put(b"far away")
        shares = {"p1": 0.999999, "p3": 1e-6}
        secret = SECRETS["other"]  # which may submit, and look who else there is
        async with consume(running[0].url, access=shares, token=secret) as consumer:
            async for obj in consumer:
                async with obj:
                    assert (obj.producer, obj.body) == ("p3", b"far away")
                consumer.stop()
        await until(lambda: running[2].objects.acknowledged == 1)
        for token in (None, SECRETS["submitter"]):
            with pytest.raises(Rejected, match="API token"):
                async for _ in consume(running[0].url, token=token):
                    pass
        async with produce(running[0].url) as stranger:
            with pytest.raises(Rejected, match="API token"):
                await stranger.put(b"from outside")


async def test_producers_that_show_nothing_get_nothing_of_others():
    async with (
        producers(2, access=access_of_tests()) as (one, other),
        produce(other.url, token=SECRETS["submitter"]) as queue,
    ):
        await queue.put(b"here")
        asked = json.dumps({"consumer": "c", "probe_id": "x", "access": {"p1": 0.5, "p2": 0.5}})
        headers = [*shown_by("submitter"), (b"spillover-deadline-ms", b"300")]
        async with httpx.AsyncClient(base_url=one.url, trust_env=False) as client:
            answer = await client.post("/take", content=asked, headers=headers)
        assert answer.status_code == 204
        assert other.objects.buffered == 1


async def test_whoever_waits_gets_nothing_more_once_their_api_token_has_gone(caplog):
    """A consumer for an object and a producer's client for a place; others that wait go on, also
    with an API token that may do something else now."""
    caplog.set_level(logging.WARNING, AUDIT_LOGGER)
    access, times = access_of_tests(), {"spillover-deadline-ms": "9000"}
    async with (
        producers(1, access=access, buffers=1) as (one,),
        httpx.AsyncClient(base_url=one.url, trust_env=False) as client,
    ):

        def take(holder):
            asked = {"consumer": holder, "probe_id": holder}
            headers = dict(shown_by(holder)) | times
            return asyncio.create_task(client.post("/take", json=asked, headers=headers))

        def offer(holder):
            headers = dict(shown_by(holder)) | times
            return asyncio.create_task(client.post("/objects", content=b"x", headers=headers))

        takes = [take("submitter"), take("other")]
        await until(lambda: len(one.shell.machine.takes) == 2)
        submitter, reader, operator, other = tokens_of_tests()
        other = replace(other, roles=frozenset({Role.SUBMIT}))
        access.go_by(ApiTokens([reader, operator, other]))
        told = await takes[0]
        assert (told.status_code, told.json()["reason"]) == (401, "unauthenticated")
        await until(lambda: len(one.shell.machine.takes) == 1)
        access.go_by(ApiTokens([submitter, other]))
        assert (await offer("other")).status_code == 201
        assert (await takes[1]).status_code == 200
        assert (await offer("other")).status_code == 201
        offers = [offer("submitter"), offer("other")]
        await until(lambda: len(one.shell.machine.offers) == 2)
        access.go_by(ApiTokens([replace(submitter, roles=frozenset({Role.READ})), other]))
        assert (await offers[0]).json()["reason"] == "forbidden"
        assert (await take("other")).status_code == 200
        assert (await offers[1]).status_code == 201
        assert one.objects.produced == 3
    said = [str(one.msg) for one in caplog.records if one.name == AUDIT_LOGGER]
    assert ["POST /take" in one for one in said] == [True, False]


async def test_an_api_token_that_goes_while_a_take_is_read_gets_nothing():
    """It counted when the head came."""
    access = access_of_tests()
    async with producers(1, access=access) as (one,):
        port = int(one.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"consumer": "c", "probe_id": "p"}'
        shown = b": ".join(shown_by("submitter")[0])
        head = b"POST /take HTTP/1.1\r\nhost: x\r\n%b\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % (shown, len(body)) + body[:9])
        await until(lambda: any(line.shown for line in one.server.connections))
        access.go_by(ApiTokens([]))
        writer.write(body[9:])
        assert b" 401 " in await reader.readline()
        assert not one.shell.machine.takes
        writer.close()
