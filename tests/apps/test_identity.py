"""Who calls, and in which version: settled once for each connection, and held against all that
comes on it."""

import json

import msgspec
import pytest

from spillover.live.http1.client import HttpClient
from spillover.live.overflow import identity, protocol, wire
from spillover.live.overflow.identity import HELLO, TurnedAway, hello_of, read_hello
from spillover.live.overflow.protocol import SPOKEN, VERSION, VERSIONS, Calls
from spillover.model.request import Request
from support.federation import topology_of

REQUEST = Request("r", keyed=False, work=b"1", path=("a",))
QUESTION = {"query": "q", "visited": ["a"], "remaining_ms": 500.0}
DISTANT = Calls.of(VERSION + 2)


def calls_of(calls):
    """(path, body) of each call that is a message."""
    return [
        (calls.forward, b"".join(wire.encode_forward(REQUEST, 5.0))),
        (calls.cancel, wire.encode_cancel("r")),
        (calls.federation, json.dumps(QUESTION).encode()),
    ]


class Connection:
    """What calls come in on, without one."""

    peer = None


async def status_of(client, method, path, body=b"", hello=None):
    headers = [] if hello is None else [(HELLO, hello)]
    response = await client.request(method, path, headers=headers, body=body, timeout_s=5.0)
    problem = json.loads(response.body)
    return response.status, problem.get("reason"), problem.get("detail")


async def test_who_has_not_said_who_it_is_gets_nothing(nodes):
    """Each path for neighbors alone refuses, whatever the version; nothing of it runs."""
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        b = federation["b"]
        paths = [one for calls in SPOKEN for one in calls_of(calls)]
        paths += [(calls.reports, b"") for calls in SPOKEN]
        for path, body in paths:
            method = "POST" if body else "GET"
            assert await status_of(b.client, method, path, body) == (
                *(403, "not_a_neighbor"),
                "expected a neighbor that says which cluster it is",
            )
        assert b.ledger.foreign["received"] == 0


@pytest.mark.parametrize("calls", SPOKEN)
async def test_what_a_connection_has_said_holds_for_it(nodes, calls):
    """Said once, it need not be said again; whoever else is named afterwards is refused, and the
    first one goes on. Other connections know nothing of it."""
    a, q = (wire.Caller(cluster, "b", "test") for cluster in "aq")
    async with nodes.Federation(nodes.topology_of("a", "b", "q")) as federation:
        b = federation["b"]
        first = calls_of(calls)[0]
        assert (await status_of(b.client, "POST", *first, hello_of(a)))[0] == 200
        for path, body in calls_of(calls):
            assert (await status_of(b.client, "POST", path, body))[0] == 200, path
        why = "its connection is that of cluster a"
        for path, body in calls_of(calls):
            refused = (403, "not_a_neighbor", why)
            assert await status_of(b.client, "POST", path, body, hello_of(q)) == refused, path
        assert (await status_of(b.client, "POST", *first))[0] == 200
        assert b.client.busy + b.client.idle == 1
        assert b.shell.neighborhood.peers.turned_away()["q"][0] == why
        other = HttpClient(b.url)
        path, body = calls_of(calls)[1]
        assert (await status_of(other, "POST", path, body))[0] == 403
        assert (await status_of(other, "POST", path, body, hello_of(q)))[0] == 200
        await other.close()


async def test_the_requests_of_a_connection_are_its_neighbors(nodes):
    """A cancel finds what came from the neighbor that its own connection is of, no other's."""
    a, q = (wire.Caller(cluster, "b", "test") for cluster in "aq")
    async with nodes.Federation(nodes.topology_of("a", "b", "q")) as federation:
        b = federation["b"]
        work = msgspec.Raw(b'{"service_ms": 9000}')
        request = Request("long", keyed=True, work=work, path=("a",))
        body = b"".join(wire.encode_forward(request, 5.0))
        sent = b.client.request(
            "POST", SPOKEN[0].forward, headers=[(HELLO, hello_of(a))], body=body, timeout_s=5.0
        )
        await nodes.until(lambda: b.ledger.foreign["running"] == 1)
        cancel = wire.encode_cancel("long")
        for caller, found in ((q, False), (a, True)):
            client = HttpClient(b.url, headers=[(HELLO, hello_of(caller))])
            told = await client.request("POST", SPOKEN[0].cancel, body=cancel, timeout_s=5.0)
            assert json.loads(told.body) == {"found": found}
            await client.close()
        assert json.loads((await sent).body)["outcome"] == "cancelled"


@pytest.mark.parametrize(
    "hello",
    [
        *(b"", b"a", b"\xff\x00", b"from=", b"&" * 60_000, b"&".join([b"from=a"] * 50)),
        b"speaks=2",
    ],
)
def test_what_cannot_be_read_was_not_said(hello):
    """And is turned away as such."""
    peers = identity.Peers(topology_of("a", "b"), "b")
    with pytest.raises(TurnedAway):
        peers.settle(Connection(), hello)


@pytest.mark.parametrize("federation", [None, "test", "zwei Städte & mehr=1", "\U0001f600" * 200])
def test_a_hello_survives_the_way(federation):
    """Whatever the federation is called; later versions may say more."""
    caller = wire.Caller("a", "b", federation)
    for more in (b"", b"&color=red"):
        assert read_hello(hello_of(caller) + more) == (caller, VERSIONS)


async def test_another_version_is_told_which_are_spoken(nodes):
    """400, which is surely not accepted, with the versions for the other side's log. It is on
    record here if the two have none in common; who only asks in its own version first is not."""
    told, path = "from=q&to=b&speaks={}", DISTANT.forward
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        b = federation["b"]
        for hello in (None, told.format(f"{VERSION + 1}%20{VERSION}"), "speaks=77"):
            headers = [] if hello is None else [(HELLO, hello.encode())]
            status, sent, problem = await b.send("POST", path, b"{}", headers)
            assert (status, problem["reason"]) == (400, "wrong_version")
            assert sent[protocol.TOLD].decode() == protocol.TELLING
        assert not b.shell.neighborhood.peers.turned_away()
        for hello, there in ((told.format("9%208"), "9 or 8"), ("from=q", "another")):
            for _ in range(3):
                await b.send("POST", path, b"{}", [(HELLO, hello.encode())])
            here = " or ".join(map(str, VERSIONS))
            why = f"protocol: version {here} here, {there} there"
            assert b.shell.neighborhood.peers.turned_away()["q"][0] == why
