"""Quotas of tenants at a running node. What a quota allows is tested in `core.overflow`."""

import asyncio
import json
from contextlib import asynccontextmanager

from spillover.apps.http.access import Access, ApiTokens
from spillover.inputs.api_tokens import new_api_token, parse_api_tokens
from spillover.live.overflow.tenants import Tenants
from spillover.model.access import Role
from support.api_tokens import bearer

LONG = {"service_ms": 60_000}
ASYNC = (b"prefer", b"respond-async")
SHOP, BANK, READER = bearer("shop's"), bearer("bank's"), bearer("reader's")


def tokens_of(shop, bank="{}"):
    """Those of two tenants with these quotas, and of who looks."""
    made = [
        new_api_token("shop", "shop's", "shop", [Role.SUBMIT]),
        new_api_token("bank", "bank's", "bank", [Role.SUBMIT]),
        new_api_token("reader", "reader's", "", [Role.READ]),
    ]
    quotas = {"shop": shop, "bank": bank}
    entries = [
        {
            "name": one.name,
            "sha256": one.sha256.hex(),
            "roles": sorted(one.roles),
            **({"tenant": one.tenant, "quota": quotas[one.tenant]} if one.tenant else {}),
        }
        for one in made
    ]
    return parse_api_tokens({"t": json.dumps(entries) + "\n"})


@asynccontextmanager
async def a_node(nodes, shop, *ids, **fields):
    tokens = tokens_of(shop, {})
    topology = nodes.topology_of(*(ids or ("a",)), **fields)
    access = Access(ApiTokens(tokens))
    async with nodes.Federation(topology, access=access) as federation:
        tenants = {c: Tenants(n.shell, tokens) for c, n in federation.nodes.items()}
        yield federation, tenants
        for node in federation.nodes.values():
            node.shell.requests.home.quotas.check()


async def post(node, who, payload=LONG, *headers):
    body = json.dumps({"payload": payload}).encode()
    return await node.send("POST", "/requests", body, [*who, *headers])


async def metric(node, name, **labels):
    response = await node.client.request("GET", "/metrics", headers=READER, timeout_s=5.0)
    found = {}
    for line in response.body.decode().splitlines():
        if line.startswith(f"{name}{{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            found[line.partition(" ")[0]] = float(line.rpartition(" ")[2])
    assert len(found) == 1, found
    return next(iter(found.values()))


async def test_what_is_too_much_is_429_and_says_which_limit(nodes):
    async with a_node(nodes, {"max_queued": 1}) as (federation, _):
        node = federation["a"]
        for number in range(2):  # one runs, one waits
            status, _, _ = await post(node, SHOP, LONG, ASYNC, (b"idempotency-key", b"%d" % number))
            assert status == 202
        status, sent, problem = await post(node, SHOP, LONG, (b"idempotency-key", b"order-7"))
        assert (status, problem["reason"], problem["limit"]) == (429, "rate_limited", "max_queued")
        assert (problem["id"], sent[b"retry-after"]) == ("order-7", b"1")
        assert node.ledger.home["accepted"] == 2
        assert await metric(node, "spillover_tenant_queued", tenant="shop") == 1
        assert await metric(node, "spillover_tenant_running", tenant="shop") == 1
        limited = {"tenant": "shop", "limit": "max_queued"}
        assert await metric(node, "spillover_tenant_limited_total", **limited) == 1
        assert await metric(node, "spillover_tenant_requests_total", tenant="shop") == 2
        assert await metric(node, "spillover_refusals_total", reason="rate_limited") == 1
        # What is known is not a request more; another tenant has its own quota.
        again = (b"idempotency-key", b"1")
        assert (await post(node, SHOP, LONG, ASYNC, again))[0] == 202
        assert (await post(node, BANK, LONG, ASYNC))[0] == 202
        # An end makes room.
        assert (await node.send("DELETE", "/requests/1", headers=SHOP))[0] == 200
        assert (await post(node, SHOP, LONG, ASYNC))[0] == 202


async def test_other_quotas_count_at_once_and_labels_stay_bounded(nodes):
    async with a_node(nodes, {"max_running": 1}) as (federation, tenants):
        node = federation["a"]
        assert (await post(node, SHOP, LONG, ASYNC))[0] == 202
        assert (await post(node, SHOP))[0] == 429
        tenants["a"].go_by(tokens_of({}, {}))
        assert (await post(node, SHOP, LONG, ASYNC))[0] == 202
        tenants["a"].go_by([one for one in tokens_of({}, {}) if one.tenant != "shop"])
        assert await metric(node, "spillover_tenant_requests_total", tenant="other") == 2
        response = await node.client.request("GET", "/metrics", headers=READER, timeout_s=5.0)
        assert b'tenant="shop"' not in response.body


async def test_a_tenant_has_as_many_sessions_as_its_quota_says(nodes):
    """And its clients that come again have their own places."""
    async with a_node(nodes, {"max_sessions": 1}) as (federation, _):
        node = federation["a"]
        access = node.server.config.app._doors.access

        def session(who, client):
            lines = []
            path, limit_s = f"/session?client={client}", 30.0
            stream = node.client.stream_lines(path, lines.append, headers=who, silence_s=limit_s)
            return asyncio.create_task(stream), lines

        first, heard = session(SHOP, "one")
        await nodes.until(lambda: heard)
        status, headers, problem = await node.send("GET", "/session?client=two", headers=SHOP)
        assert (status, problem["reason"]) == (429, "rate_limited")
        assert problem["limit"] == "max_sessions"
        assert int(headers[b"retry-after"]) >= 1
        again, heard = session(SHOP, "one")
        await nodes.until(lambda: heard)
        await first  # it was the same client
        other, heard_there = session(BANK, "one")
        await nodes.until(lambda: heard_there)
        limited = "spillover_tenant_limited_total"
        assert await metric(node, limited, tenant="shop", limit="max_sessions") == 1.0
        # Who is revoked is told nothing more; the other tenant's client stays.
        kept = [one for one in access.tokens.by_digest.values() if one.tenant != "shop"]
        access.go_by(ApiTokens(kept))
        await again
        assert not other.done()
        other.cancel()
        await nodes.until(lambda: node.shell.requests.home.quotas.uses["bank"].sessions == 0)
        assert node.shell.requests.home.quotas.uses["shop"].sessions == 0
