"""Nodes that prove to each other who they are, on real sockets."""

import asyncio
import json
import re
from collections import Counter
from datetime import timedelta

import pytest

from spillover.live.http1.client import HttpClient
from spillover.live.overflow.identity import HELLO
from spillover.live.overflow.protocol import FIRST
from spillover.live.tls.contexts import client_context, trusting_context
from spillover.live.tls.material import described, read_material
from spillover.model.errors import NotBelieved, NotDelivered
from support.certificates import Authority
from support.federation import topology_of, until
from support.secure_federation import SecureFederation, name_of


def _pair(tmp_path, **fields):
    absent = fields.pop("absent", ())
    return SecureFederation(topology_of("a", "b", **fields), absent, directory=tmp_path)


async def _flood(node, number):
    """Requests at once, more than the node takes alone; their statuses and where they ran."""
    answers = await asyncio.gather(*(node.post({"service_ms": 30}) for _ in range(number)))
    return [answer.status for answer in answers], {
        json.loads(answer.body).get("cluster") for answer in answers
    }


async def test_forwards_over_tls(tmp_path):
    """Requests go to a neighbor and come back, over one link that both ends believe."""
    async with _pair(tmp_path) as pair:
        statuses, clusters = await _flood(pair["a"], 20)
        assert set(statuses) == {200}
        assert clusters == {"a", "b"}
        assert pair.credentials["a"].failures == pair.credentials["b"].failures
        assert not any(pair.credentials["a"].failures.values())


BAD = {
    "another CA": ({"authority": Authority("stranger")}, "untrusted"),
    "ended": ({"begins": timedelta(days=-9), "ends": timedelta(seconds=-1)}, "expired"),
    "not begun": ({"begins": timedelta(days=1), "ends": timedelta(days=9)}, "not_yet_valid"),
    "another cluster's": ({"name": name_of("c")}, None),
    "another federation's": ({"name": "a.other.spillover"}, None),
    "none": (None, None),
}


def _caller(pair, cluster, wrong):
    """As cluster a calls another one, with whatever certificate."""
    context = trusting_context(pair.files[cluster].ca)
    if wrong is not None:
        pair.certify("a", **wrong)
        context.load_cert_chain(pair.files["a"].cert, pair.files["a"].key)
    return HttpClient(
        pair[cluster].url,
        tls=context,
        server_name=name_of(cluster),
        first=FIRST,
        idle_s_max=60.0,  # its connection is to be there still after all that comes
        headers=[(HELLO, b"from=a&to=%b&federation=test&speaks=2" % cluster.encode())],
    )


@pytest.mark.parametrize("what", BAD)
async def test_nothing_ends_unknown_by_a_bad_certificate(tmp_path, what):
    """What is handed on with it surely is not accepted: it never leaves, or is refused."""
    wrong, reason = BAD[what]
    async with _pair(tmp_path, absent=("a",)) as pair:
        client = _caller(pair, "b", wrong)
        calls = [
            client.request("POST", "/peer/v2/forward", body=b"{}", timeout_s=9.0) for _ in range(20)
        ]
        told = await asyncio.gather(*calls, return_exceptions=True)
        await client.close()
        failures = pair.credentials["b"].failures
        if wrong is not None and reason is None:
            assert [answer.status for answer in told] == [403] * 20
            assert not any(failures.values())
        elif wrong is not None:
            assert {type(error) for error in told} == {NotBelieved}
            assert failures["in", reason] == sum(failures.values()) > 0


async def test_a_neighbor_that_is_not_who_it_should_be(tmp_path):
    """A does not speak to what is at b's address and cannot prove to be b."""
    pair = _pair(tmp_path, absent=("b",))
    pair.certify("b", name=name_of("c"))
    async with pair:
        await pair.start("b")
        assert set((await _flood(pair["a"], 10))[0]) == {200}
        shown = described(pair.credentials["b"].material.leaf)
        told = f"is not believed: Hostname mismatch.*; it shows {re.escape(shown)}$"
        with pytest.raises(NotDelivered, match=told):
            await pair["a"].shell.neighborhood.links[0]._client.warm(1)
        assert pair.credentials["a"].failures["out", "wrong_name"] > 0
        tell = pair["a"].shell.metrics.registry.get_sample_value
        labels = {"cluster": "a", "side": "out", "reason": "wrong_name"}
        assert tell("spillover_tls_handshake_failures_total", labels) > 0
        ends_s = tell("spillover_tls_certificate_not_after_seconds", {"cluster": "a", "of": "own"})
        assert ends_s == pair.credentials["a"].material.not_after_s


async def test_a_neighbor_may_not_speak_for_others(tmp_path):
    """Who has no neighbor's certificate finds nothing under /peer/ (`test_certified_doors`)."""
    async with _pair(tmp_path) as pair:
        node = pair["a"]
        other = read_material(pair.files["b"], name_of("b"))
        claims = {"b": 200, "c": 403, "a": 403, "": 403}
        for claimed, expected in claims.items():
            hello = b"from=%b&to=a&federation=test&speaks=2" % claimed.encode()
            client = HttpClient(
                node.url,
                tls=client_context(other),
                server_name=name_of("a"),
                headers=[(HELLO, hello)],
            )
            answer = await client.request("GET", FIRST, timeout_s=9.0)
            assert answer.status == expected, claimed
            if claimed == "b":
                told = json.loads(answer.body)
                epoch = node.ledger.epoch
                assert told == {"cluster": "a", "epoch": epoch, "speaks": "3 2"}
            await client.close()


async def test_an_address_is_no_name(tmp_path):
    """Only who proves to be the cluster is spoken to, whatever the url says."""
    async with _pair(tmp_path) as pair:
        client = HttpClient(pair["a"].url, tls=trusting_context(pair.files["a"].ca))
        with pytest.raises(NotDelivered, match="IP address mismatch"):
            await client.request("GET", "/healthz", timeout_s=9.0)
        await client.close()


class Load:
    """Requests to one node without a pause, from entering to leaving; how they ended."""

    def __init__(self, node, at_once=12):
        self._node = node
        self._at_once = at_once
        self.statuses = Counter()
        self.clusters = Counter()

    async def __aenter__(self):
        self._tasks = [asyncio.create_task(self._ask()) for _ in range(self._at_once)]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _ask(self):
        while True:
            answer = await self._node.post({"service_ms": 5})
            self.statuses[answer.status] += 1
            self.clusters[json.loads(answer.body).get("cluster")] += 1

    async def more(self, cluster, number=30):
        """Wait until so many more have been run there."""
        wanted = self.clusters[cluster] + number
        await until(lambda: self.clusters[cluster] >= wanted)


async def _renew(pair, new, old, now):
    """Each node gets these certificates, one after the other, while the others go on."""
    signer, trusted = {
        "both": (old, (old, new)),
        "leaves": (new, (old, new)),
        "new": (new, (new,)),
    }[now]
    for cluster, credentials in pair.credentials.items():
        pair.certify(cluster, signer, trusted=trusted)
        assert await credentials.look()


@pytest.mark.slow
async def test_rotation_under_load(tmp_path):
    """Old CA, both, then the new one alone: no request fails, and then what the old one vouched for
    is refused, on connections that there were, too."""
    old, new = Authority("old"), Authority("new")
    pair = _pair(tmp_path)
    pair.authority = old
    async with pair:
        # Somebody who was believed once, on a connection of his own.
        former = _caller(pair, "b", {"authority": old})
        assert (await former.request("GET", FIRST, timeout_s=9.0)).status == 200
        pair.certify("a")
        async with Load(pair["a"]) as load:
            await load.more("b")
            for now in ("both", "leaves", "new"):
                await _renew(pair, new, old, now)
                await load.more("b")
                await load.more("a")
            assert set(load.statuses) == {200}
        answer = await former.request("GET", FIRST, timeout_s=9.0)
        assert (answer.status, answer.headers[b"connection"]) == (403, b"close")
        former._securing.context.load_verify_locations(cadata=new.pem.decode())
        with pytest.raises(NotDelivered, match="not accepted"):
            await former.request("GET", FIRST, timeout_s=9.0)
        await former.close()
        assert pair.credentials["b"].failures["in", "untrusted"] > 0
        ends = [one.failures["out", "refused"] for one in pair.credentials.values()]
        assert ends == [0, 0]


@pytest.mark.slow
async def test_what_is_away_comes_back_although_neighbors_part(tmp_path):
    """Once b does not believe a, it answers what it holds of a's, and gets nothing new."""
    clusters = {"a": {"servers": 1}, "b": {"servers": 4}}
    async with _pair(tmp_path, clusters=clusters) as pair:
        a, b = pair["a"], pair["b"]
        answers = [a.post({"service_ms": 1500}) for _ in range(4)]
        await until(lambda: b.ledger.foreign["running"] > 0)
        pair.certify("b", trusted=[Authority("another")])
        assert await pair.credentials["b"].look()
        await until(lambda: a.shell.neighborhood.links[0]._agreement.is_turned_away)
        assert b.ledger.foreign["running"] > 0
        received = b.ledger.foreign["received"]
        told = [json.loads((await answer).body) for answer in answers]
        assert {one["cluster"] for one in told} == {"a", "b"}
        assert set((await _flood(a, 8))[0]) == {200}
        assert b.ledger.foreign["received"] == received
