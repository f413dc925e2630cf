"""The doors of a node whose neighbors have certificates: the one table, walked with each kind of
certificate and each kind of API token. None takes the place of the other.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

pytest.importorskip("cryptography")

from spillover.apps.node.doors import DOORS
from spillover.live.http1.client import HttpClient
from spillover.live.overflow.identity import HELLO
from spillover.live.tls.contexts import trusting_context
from spillover.model.errors import PeerError
from support.api_tokens import access_of_tests, shown_by
from support.certificates import Authority, put
from support.doors import expected, filled
from support.federation import topology_of
from support.secure_federation import SecureFederation, name_of

TOKENS = (None, "operator")
PEER_PATHS = (
    "/peer/v2/forward",
    "/peer/v2/cancel",
    "/peer/v2/federation",
    "/peer/v2/configuration",
)

NO_NEIGHBORS = {
    "none": None,
    "own CA, another cluster's": {"name": name_of("c")},
    "own CA, this node's": {"name": name_of("a")},
    "own CA, another federation's": {"name": "b.other.spillover"},
    "own CA, no name": {"name": "b"},
}
"""Certificates of who says to be b; they are shown on connections that come about."""

BELIEVED_BY_NOBODY = {
    "expired": {"begins": timedelta(days=-9), "ends": timedelta(seconds=-1)},
    "not begun": {"begins": timedelta(days=1), "ends": timedelta(days=9)},
    "another federation's CA": {"authority": Authority("of another federation")},
}
"""There is no connection for them, to whatever door."""


def caller(pair, shown, says="b"):
    """A client with this certificate, who says to be a cluster."""
    context = trusting_context(pair.files["a"].ca)
    if shown is not None:
        fields = {"name": name_of("b"), "authority": pair.authority, **shown}
        authority, name = fields.pop("authority"), fields.pop("name")
        files = put(pair.directory, "shown", authority.sign(name, **fields), pair.authority)
        context.load_cert_chain(files.cert, files.key)
    said = b"from=%b&to=a&federation=test&speaks=2" % says.encode()
    return HttpClient(pair["a"].url, tls=context, server_name=name_of("a"), headers=[(HELLO, said)])


async def reason_of(client, verb, path, token):
    answer = await client.request(verb, path, headers=shown_by(token), body=b"{}", timeout_s=10.0)
    told = answer.headers.get(b"content-type", b"")
    return json.loads(answer.body)["reason"] if told == b"application/problem+json" else None


async def walk(pair, kind):
    """Look for a door that is not as the table has it, by each verb that it knows."""
    client = caller(pair, NO_NEIGHBORS[kind])
    for path, needs in DOORS.items():
        if path in ("/console/events", "/session"):
            continue  # these go on; with API tokens they are walked without certificates
        for verb in needs:
            for token in TOKENS:
                found = await reason_of(client, verb, filled(path), token)
                told = expected(token, path, verb)
                if path.startswith("/peer/"):
                    assert found == "not_a_neighbor", (kind, verb, token)
                else:
                    doors_say = found in ("unauthenticated", "forbidden")
                    assert (found if told else doors_say) == (told or False), (kind, verb, path)
    for path in PEER_PATHS:
        for token in TOKENS:
            found = await reason_of(client, "POST", path, token)
            assert found == "not_a_neighbor", (kind, path, token)
    await client.close()


@asynccontextmanager
async def a_pair(tmp_path):
    pair = SecureFederation(topology_of("a", "b"), access=access_of_tests(), directory=tmp_path)
    async with pair:
        yield pair


@pytest.mark.slow
async def test_no_door_opens_to_a_certificate_that_it_is_not_for(tmp_path):
    """Where it is no neighbor's there is nothing under /peer/, whatever API token comes with it;
    elsewhere it opens nothing, and shuts nobody out."""
    async with a_pair(tmp_path) as pair:
        for kind in NO_NEIGHBORS:
            await walk(pair, kind)


async def test_an_api_token_is_not_asked_of_a_neighbor_at_its_doors_and_is_at_all_others(tmp_path):
    async with a_pair(tmp_path) as pair:
        client = caller(pair, {})
        for path in PEER_PATHS:
            found = await reason_of(client, "POST", path, None)
            assert found not in ("not_a_neighbor", "unauthenticated", "forbidden"), path
        assert await reason_of(client, "GET", "/state", None) == "unauthenticated"
        assert await reason_of(client, "POST", "/admin/drain", None) == "unauthenticated"
        await client.close()
        # One of this federation's CA that is no neighbor, and says who it is.
        client = caller(pair, {"name": name_of("c")}, says="c")
        forward = b'{"id":"f","path":["c"],"remaining_ms":9,"payload":1}'
        answer = await client.request("POST", PEER_PATHS[0], body=forward, timeout_s=10.0)
        assert (answer.status, json.loads(answer.body)["reason"]) == (403, "not_a_neighbor")
        await client.close()


async def test_no_door_at_all_for_a_certificate_that_does_not_hold(tmp_path):
    async with a_pair(tmp_path) as pair:
        for shown in BELIEVED_BY_NOBODY.values():
            client = caller(pair, shown)
            asked = [
                client.request("GET", path, headers=shown_by("operator"), timeout_s=10.0)
                for path in ("/state", "/healthz", "/peer/v2/hello")
            ]
            # In TLS 1.3 a client hears of it only after it has sent: it has no answer in any case.
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert not [one for one in told if not isinstance(one, PeerError)]
            await client.close()
