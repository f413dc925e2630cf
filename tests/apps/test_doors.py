"""The doors of a node with API tokens: the one table, walked with every kind of caller, and held
against all that the app answers to. What tenants have of each other is in `test_tenants`.
"""

import asyncio
import json
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import product

import httpx
import pytest

from spillover.apps.http.access import SECRET_LENGTH_MAX, ApiTokens
from spillover.apps.http.audit import AUDIT_LOGGER, FAILED_PER_S
from spillover.apps.http.console.broadcast import OF_ONE_MAX
from spillover.apps.node.doors import DOORS, TABLE
from spillover.inputs.api_tokens import new_api_token
from spillover.model.access import Role
from support.api_tokens import SECRETS, access_of_tests, bearer, shown_by, tokens_of_tests
from support.doors import REASONS, STRANGERS, expected, filled, verbs_of

CALLERS = (*STRANGERS, "submitter", "reader", "operator", "other")
"""The last one is of another tenant."""


async def reason_of(client, verb, path, headers):
    """Of a problem that the doors may give; None for whatever else it came to."""
    async with client.stream(verb, path, headers=headers) as response:
        if verb == "HEAD" or response.status_code not in REASONS:
            return REASONS.get(response.status_code)
        return json.loads(await response.aread())["reason"]


@asynccontextmanager
async def a_node(nodes):
    topology, access = nodes.topology_of("a", client_sessions_max=0), access_of_tests()
    async with nodes.Federation(topology, access=access) as federation:
        await _be_revoked(federation["a"], access)
        yield federation["a"]


async def _be_revoked(node, access):
    """Of an API token that was let in before."""
    revoked = new_api_token("revoked", "revoked", "shop", tuple(Role))
    access.go_by(ApiTokens([*tokens_of_tests(), revoked]))
    assert (await node.send("GET", "/state", headers=shown_by("revoked")))[0] == 200
    access.go_by(ApiTokens(tokens_of_tests()))


@pytest.mark.slow
async def test_every_door_is_open_to_those_it_is_for_and_to_nobody_else(nodes):
    async with (
        a_node(nodes) as node,
        httpx.AsyncClient(base_url=node.url, trust_env=False) as client,
    ):
        knocks = product(CALLERS, [(path, verb) for path in DOORS for verb in verbs_of(path)])
        for caller, (path, verb) in knocks:
            if caller in ("wrong", "revoked", "other") and verb not in DOORS[path]:
                continue  # as whoever shows none, or may do the same
            told = expected(caller, path, verb)
            found = await reason_of(client, verb, filled(path), shown_by(caller))
            doors_say = found in ("unauthenticated", "forbidden")
            assert (found if told else doors_say) == (told or False), (verb, path, caller)


async def test_what_the_table_does_not_have_is_not_there_for_anybody(nodes):
    async with a_node(nodes) as node:
        for caller in CALLERS:
            _, _, problem = await node.send("GET", "/admin/drained", headers=shown_by(caller))
            known = caller in SECRETS
            assert problem["reason"] == ("not_found" if known else "unauthenticated"), caller
        _, _, problem = await node.send("GET", "/stat", headers=shown_by("reader"))
        assert problem["detail"].endswith("did you mean /state?")


async def test_all_that_the_app_answers_to_stands_in_the_table(nodes):
    """A new route without an entry fails here; an entry without a route, too."""
    async with a_node(nodes) as node:
        app = node.server.config.app
        _, _, described = await node.send("GET", "/openapi.json", headers=shown_by("reader"))
        for path, operations in described["paths"].items():
            door = "/peer/{call}" if path.startswith("/peer/") else path
            assert {verb.upper() for verb in operations} <= set(DOORS[door]), path
            for verb, operation in operations.items():
                is_closed = isinstance(DOORS[door][verb.upper()], Role)
                assert ("401" in operation["responses"]) == is_closed, path
                assert ("security" in operation) == is_closed, path
        hidden = {route.path for route in app.cold.made().routes} | set(app._routes)
        assert not [path for path in hidden if TABLE.needs_of(path) is None]
        known = {*hidden, *described["paths"]}
        of_doors = {id(TABLE.needs_of(path)) for path in known}
        assert not [path for path, needs in DOORS.items() if id(needs) not in of_doors]


WRONG = (
    *([(b"authorization", value)] for value in (b"", b"Bearer", b"Bearer ", b"Basic c2VjcmV0")),
    [(b"authorization", SECRETS["operator"].encode())],
    [(b"authorization", b"Bearer " + b"x" * 60_000)],
    [(b"authorization", b"Bearer \xff\xfe")],
    [*bearer(SECRETS["operator"]), *bearer(SECRETS["reader"])],
    bearer(SECRETS["operator"] + "x"),
    bearer(SECRETS["operator"][:-1]),
    bearer(SECRETS["operator"].upper()),
)


async def test_what_is_no_api_token_lets_nobody_in(nodes):
    """Also on a connection that has shown a right one before."""
    async with a_node(nodes) as node:
        for headers, path in product(WRONG, ("/state", "/requests/x")):
            await node.send("GET", path, headers=shown_by("other"))
            status, sent, problem = await node.send("GET", path, headers=headers)
            assert (status, problem["reason"]) == (401, "unauthenticated"), headers
            assert sent[b"www-authenticate"].startswith(b"Bearer ")


async def test_whoever_watches_the_console_is_cut_off_when_their_api_token_goes(nodes):
    async with a_node(nodes) as node:
        access = node.server.config.app._doors.access
        async with httpx.AsyncClient(base_url=node.url, trust_env=False) as client:
            headers = dict(shown_by("reader"))
            async with client.stream("GET", "/console/events", headers=headers) as response:
                events = response.aiter_lines()
                assert "event: hello" in [await anext(events), await anext(events)]
                access.go_by(type(access.tokens)([]))
                async for _ in events:
                    pass
            assert (await client.get("/console/events", headers=headers)).status_code == 401


async def test_nobody_takes_all_places_of_the_console(nodes):
    async with a_node(nodes) as node:
        async with (
            httpx.AsyncClient(base_url=node.url, trust_env=False) as client,
            AsyncExitStack() as stack,
        ):
            listen = partial(client.stream, "GET", "/console/events")
            for _ in range(OF_ONE_MAX):
                response = await stack.enter_async_context(listen(headers=shown_by("reader")))
                assert response.status_code == 200
            async with listen(headers=shown_by("reader")) as refused:
                assert refused.status_code == 503
                assert b"8 pages that listen at a time with this API token" in await refused.aread()
            async with listen(headers=shown_by("operator")) as response:
                assert response.status_code == 200
        broadcast = node.server.config.app.cold.made().state.console.broadcast
        await nodes.until(lambda: broadcast.listeners == 0)
        assert not broadcast._held


def audit_lines(caplog):
    records = [one for one in caplog.records if one.name == AUDIT_LOGGER]
    return [(one.levelname, one.msg.words, one.msg.fields) for one in records]


async def test_each_act_of_an_operator_and_each_who_is_turned_away_is_a_line(nodes, caplog):
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    async with a_node(nodes) as node:
        await node.send("POST", "/admin/drain", headers=shown_by("operator"))
        await node.send("GET", "/state", headers=shown_by("operator"))
        await node.send("PUT", "/admin/policy", b"{}", headers=shown_by("operator"))
        await node.send("POST", "/admin/resume", headers=shown_by("reader"))
        await node.send("GET", "/requests/x", headers=bearer("guessed"))
    here = {"address": "127.0.0.1"}
    operator, reader = {"api_token": "operator"}, {"api_token": "reader", "tenant": "shop"}
    refused = {"outcome": "unauthenticated", "door": "GET /requests/x"}
    assert audit_lines(caplog) == [
        (
            "INFO",
            "operator acts",
            operator | {"door": "POST /admin/drain", "outcome": "202"} | here,
        ),
        (
            "INFO",
            "operator acts",
            operator | {"door": "PUT /admin/policy", "outcome": "422"} | here,
        ),
        (
            "WARNING",
            "turned away",
            reader | {"door": "POST /admin/resume", "outcome": "forbidden"} | here,
        ),
        ("WARNING", "turned away", refused | here),
    ]
    assert "guessed" not in caplog.text
    assert SECRETS["operator"] not in caplog.text


async def test_who_knocks_often_does_not_fill_the_disk(nodes, caplog):
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    async with a_node(nodes) as node:
        asked = [node.send("GET", "/state", headers=bearer("x")) for _ in range(10 * FAILED_PER_S)]
        told = await asyncio.gather(*asked)
        assert {status for status, _, _ in told} == {401}
    lines = audit_lines(caplog)
    seconds = len({int(one.created) for one in caplog.records if one.name == AUDIT_LOGGER})
    assert FAILED_PER_S <= len(lines) <= FAILED_PER_S * (seconds + 1)


def test_a_secret_counts_as_a_bearers_alone_and_within_bounds():
    """Nothing else is hashed, however much of it is sent."""
    tokens = ApiTokens(tokens_of_tests())
    secret = SECRETS["reader"].encode()
    for scheme in (b"Bearer ", b"bearer ", b"BEARER  "):
        assert tokens.find(scheme + secret).name == "reader"
    for scheme in (b"Digest ", b"Basic  ", b""):
        assert tokens.find(scheme + secret) is None
    most = (b"Bearer " + secret).ljust(SECRET_LENGTH_MAX)
    assert tokens.find(most).name == "reader"
    assert tokens.find(most + b" ") is None
