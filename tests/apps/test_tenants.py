"""Tenants own the names of their requests: at home, at neighbors, in answers, cancels and stories.
Who may come in at all is in `test_doors`."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from spillover.apps.http.access import ApiTokens
from spillover.inputs.api_tokens import new_api_token
from spillover.model.access import Role
from spillover.model.ids import name_of, request_id_of, tenant_of, told_inside
from support import scripted_server
from support.api_tokens import access_of_tests, bearer, shown_by

SHOP, BANK = shown_by("submitter"), shown_by("other")
LONG = {"service_ms": 60_000}


def keyed(who, name="order-7", **more):
    headers = {"idempotency-key": name, **more}
    return [*who, *((k.encode(), v.encode()) for k, v in headers.items())]


@asynccontextmanager
async def some_nodes(nodes, *ids, **fields):
    topology = nodes.topology_of(*(ids or ("a",)), **fields)
    async with nodes.Federation(topology, access=access_of_tests()) as federation:
        yield federation


def body(payload):
    return json.dumps({"payload": payload}).encode()


async def post(node, who, payload, name="order-7", **more):
    return await node.send("POST", "/requests", body(payload), keyed(who, name, **more))


async def look(node, who, name="order-7"):
    status, _, shown = await node.send("GET", f"/requests/{name}", headers=who)
    return status, shown.get("state") or shown["reason"]


@pytest.mark.parametrize("tenant", ["", "shop"])
def test_an_id_is_of_a_tenant_and_a_name(tenant):
    made = request_id_of(tenant, "a/b")
    assert (tenant_of(made), name_of(made)) == (tenant, "a/b")
    assert told_inside(made) == ("shop/a/b" if tenant else "a/b")
    assert request_id_of("shop", "x") != request_id_of("", "shop/x")


async def test_two_tenants_may_use_the_same_name_and_get_their_own_answers(nodes):
    async with some_nodes(nodes) as federation:
        node = federation["a"]
        _, _, first = await post(node, SHOP, {"service_ms": 1, "of": "shop"})
        status, sent, second = await post(node, BANK, {"service_ms": 1, "of": "bank"})
        assert status == 200
        assert b"spillover-replayed" not in sent
        assert (first["id"], second["id"]) == ("order-7", "order-7")
        assert sent[b"spillover-request-id"] == b"order-7"
        for who, of in ((SHOP, "shop"), (BANK, "bank")):
            _, sent, again = await post(node, who, {"service_ms": 1, "of": of})
            assert sent[b"spillover-replayed"] == b"true"
            _, _, shown = await node.send("GET", "/requests/order-7", headers=who)
            assert again["id"] == shown["id"] == "order-7"
        # No conflict with another tenant's, one with its own.
        assert (await post(node, BANK, {"service_ms": 2}))[0] == 409
        assert node.ledger.home["done"] == 2


async def test_another_tenants_requests_cannot_be_seen_or_cancelled(nodes):
    async with some_nodes(nodes) as federation:
        node = federation["a"]
        status, sent, _ = await post(node, SHOP, LONG, prefer="respond-async")
        assert (status, sent[b"location"]) == (202, b"/requests/order-7")
        assert await look(node, SHOP) == (200, "running")
        assert await look(node, BANK) == (404, "unknown_request")
        status, _, _ = await node.send("DELETE", "/requests/order-7", headers=BANK)
        assert status == 404
        assert (await node.send("GET", "/explain/order-7", headers=BANK))[0] == 404
        own = await node.send("GET", "/explain/order-7", headers=shown_by("reader"))
        assert (own[0], own[2]["id"]) == (200, "order-7")
        assert len(own[2]["decisions"]) == 1
        for reader in (BANK, shown_by("operator")):
            told = await node.send("GET", "/explain/shop%00order-7", headers=reader)
            assert told[0] == 404
        # Nor by the id that it has inside.
        for name in ("shop%00order-7", "shop%2Forder-7", "shop/order-7"):
            assert await look(node, BANK, name) == (404, "unknown_request")
        status, _, shown = await node.send("DELETE", "/requests/order-7", headers=SHOP)
        assert (status, shown["state"]) == (200, "cancelled")


async def test_a_tenant_is_that_of_the_api_token_whatever_is_said(nodes):
    """Neither a header nor a field of the body, nor a name that looks like another tenant's."""
    said = {"spillover-tenant": "bank", "tenant": "bank", "x-tenant": "bank"}
    async with some_nodes(nodes) as federation:
        node = federation["a"]
        assert (await post(node, SHOP, {"service_ms": 1}, **said))[0] == 200
        assert (await post(node, SHOP, {"service_ms": 1}, name="bank/order-8"))[0] == 200
        for name in ("order-7", "order-8"):
            assert (await look(node, BANK, name))[0] == 404
        assert (await look(node, SHOP))[0] == 200
        told = json.dumps({"payload": 1, "tenant": "bank"}).encode()
        assert (await node.send("POST", "/requests", told, SHOP))[0] == 422


async def test_a_request_is_its_tenants_at_a_neighbor_too(nodes):
    """It goes there with its tenant, and is told there, and cancelled, to that one alone."""
    clusters = {"a": {"queue_limit": 0}, "b": {"servers": 4}}
    async with some_nodes(nodes, "a", "b", clusters=clusters) as federation:
        a, b = federation["a"], federation["b"]
        await post(a, SHOP, LONG, name="in-the-way", prefer="respond-async")
        assert (await post(a, SHOP, LONG, prefer="respond-async"))[0] == 202
        await nodes.until(lambda: b.ledger.foreign["running"] == 1)
        assert await look(a, SHOP) == (200, "forwarded")
        assert await look(b, SHOP) == (200, "running")
        assert await look(b, BANK) == await look(a, BANK) == (404, "unknown_request")
        # The same name is free for another tenant there meanwhile.
        status, _, told = await post(b, BANK, {"service_ms": 1})
        assert (status, told["id"], told["path"]) == (200, "order-7", ["b"])
        assert (await b.send("DELETE", "/requests/order-7", headers=BANK))[2]["state"] == "done"
        assert b.ledger.foreign["running"] == 1
        status, _, shown = await a.send("DELETE", "/requests/order-7", headers=SHOP)
        assert (status, shown["state"], shown["id"]) == (200, "cancelled", "order-7")
        assert b.ledger.foreign["cancelled"] == 1
        assert await look(b, SHOP) == (404, "unknown_request")


async def test_made_names_are_of_their_tenant_too(nodes):
    async with some_nodes(nodes) as federation:
        node = federation["a"]
        async_ = [*SHOP, (b"prefer", b"respond-async")]
        _, _, shown = await node.send("POST", "/requests", body({"service_ms": 1}), async_)
        assert shown["id"].startswith("a-")
        assert (await look(node, BANK, shown["id"]))[0] == 404
        assert (await look(node, SHOP, shown["id"]))[0] == 200


async def test_clients_of_two_tenants_may_have_sessions_of_one_name(nodes):
    async with some_nodes(nodes) as federation:
        node = federation["a"]
        sessions = [
            asyncio.ensure_future(
                node.client.request("GET", "/session?client=c", headers=who, timeout_s=5.0)
            )
            for who in (SHOP, BANK)
        ]
        state = shown_by("reader")
        async with asyncio.timeout(nodes.LIMIT_S):
            while True:
                _, _, shown = await node.send("GET", "/state", headers=state)
                if shown["clients"]["connected"] == 2:
                    break
        _, _, told = await node.send("DELETE", "/session?client=c", headers=BANK)
        assert told == {"found": True}
        await sessions[1]
        assert not sessions[0].done()
        await node.send("DELETE", "/session?client=c", headers=SHOP)
        await sessions[0]


async def test_the_console_tells_nobody_the_names_of_tenants(nodes):
    async with some_nodes(nodes) as federation:
        node = federation["a"]
        await post(node, SHOP, {"service_ms": 1})
        shown = await node.server.config.app.cold.made().state.console.broadcast._look()
        assert len(json.loads(shown)["decisions"]) == 1
        assert b"order-7" not in shown


async def test_services_behind_a_node_can_tell_tenants_names_apart(nodes):
    """The same key of two tenants must not be one to a service that goes by it."""
    async with scripted_server.scripted(scripted_server.answer(200, {})) as service:
        topology = nodes.topology_of("a", clusters={"a": {"handler": f"http:{service.url}"}})
        async with nodes.Federation(topology, access=access_of_tests()) as federation:
            for who in (SHOP, BANK):
                status, _, told = await post(federation["a"], who, {})
                assert (status, told["id"]) == (200, "order-7")
        seen = [headers for _, headers in service.seen if "spillover-request-id" in headers]
    assert [one["spillover-request-id"] for one in seen] == ["shop/order-7", "bank/order-7"]
    assert [one["idempotency-key"] for one in seen] == ["shop/order-7", "bank/order-7"]
    assert not [one for one in seen if "authorization" in one]


async def test_work_that_was_let_in_goes_on_when_its_api_token_is_revoked(nodes):
    """Who waits for it is answered; nobody else asks with that API token any more. The name stays
    the tenant's, and whoever else has an API token of it gets the answer."""
    async with some_nodes(nodes) as federation:
        node = federation["a"]
        access = node.server.config.app._doors.access
        secret = "another of the same tenant"  # noqa: S105 - of this test
        same = new_api_token("same", secret, "shop", [Role.SUBMIT])
        waiting = asyncio.create_task(post(node, SHOP, {"service_ms": 300}))
        await nodes.until(lambda: node.ledger.home["running"] == 1)
        polling = asyncio.create_task(
            node.send("GET", "/requests/order-7?wait_ms=10000", headers=SHOP)
        )
        (ref,) = node.shell.requests.waiters._by_ref
        await nodes.until(lambda: len(node.shell.requests.waiters.of(ref)) == 2)
        kept = [one for one in access.tokens.by_digest.values() if one.name != "submitter"]
        access.go_by(ApiTokens([*kept, same]))
        assert (await post(node, SHOP, {"service_ms": 300}))[0] == 401
        assert (await look(node, SHOP))[0] == 401
        assert (await node.send("DELETE", "/requests/order-7", headers=SHOP))[0] == 401
        assert (await waiting)[0] == 200
        assert (await polling)[2]["state"] == "done"
        status, sent, _ = await post(node, bearer(secret), {"service_ms": 300})
        assert (status, sent[b"spillover-replayed"]) == (200, b"true")
        assert await look(node, BANK) == (404, "unknown_request")
