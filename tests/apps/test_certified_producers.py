"""Producers of the queue with certificates: each proves to the others which one it is, and to
whoever calls that it is the host of its url. Certificates themselves are tested in tests/live/tls.
"""

import json
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

pytest.importorskip("cryptography")

from spillover.apps.queue.doors import DOORS
from spillover.client import Unreachable, consume, produce
from spillover.live.http1.client import HttpClient
from spillover.live.queue.certified import certify
from spillover.live.queue.wire import OFFER_PATH, PROBE_PATH
from spillover.live.tls import rotation
from spillover.live.tls.contexts import trusting_context
from spillover.model.errors import InputError, NotBelieved, PeerError
from support.certificates import Authority, put
from support.loop import until
from support.queue_producers import producers

SAYS = {
    PROBE_PATH: {
        "id": "x",
        "first": "p2",
        "consumer": "c",
        "hop": 1,
        "max_hops": 2,
        "access": {"p1": 1.0},
        "left_ms": 50,
    },
    OFFER_PATH: {"probe_id": "x", "producer": "p2", "grant": "g", "probes": 1},
}
"""What producer p2 says to p1."""


@pytest.fixture(scope="module")
def authority():
    return Authority("of the queue")


@pytest.fixture
def certified(tmp_path, authority):
    """`certified("p1")`: its files. `by` is who signs, `name` for whom, `trusted` whom it
    believes."""

    def certify_it(producer, name=None, by=authority, trusted=None, **dates):
        signed = by.sign(name or f"{producer}.orders.spillover", addresses=["127.0.0.1"], **dates)
        return put(tmp_path, producer, signed, *([authority] if trusted is None else trusted))

    return certify_it


def far(urls, ca_file, body=b"far away"):
    """Put an object into the last one, and take it by the first one."""

    async def go():
        async with produce(urls[-1], ca_file=ca_file) as queue:
            await queue.put(body)
        shares = {"p1": 0.999999, f"p{len(urls)}": 1e-6}
        async with consume(urls[0], access=shares, ca_file=ca_file) as consumer:
            async for obj in consumer:
                async with obj:
                    found = obj.producer, obj.body
                consumer.stop()
        return found

    return go()


async def test_objects_go_from_producer_to_producer_and_to_who_believes_them(certified):
    files = {name: certified(name) for name in ("p1", "p2", "p3")}
    async with producers(3, certificates=files) as them:
        urls = [one.url for one in them]
        assert {url.partition(":")[0] for url in urls} == {"https"}
        assert await far(urls, files["p1"].ca) == ("p3", b"far away")
        with pytest.raises(Unreachable, match="not believed"):
            async for _ in consume(urls[0]):
                pass
        client = HttpClient(urls[0], tls=trusting_context(files["p1"].ca))
        metrics = (await client.request("GET", "/metrics", timeout_s=5.0)).body
        assert b'spillover_tls_certificate_not_after_seconds{node="p1",of="own"}' in metrics
        await client.close()


CALLERS = {
    "nobody": None,
    "another queue's": {"name": "p2.other.spillover"},
    "a node's": {"name": "a.orders.spillover"},
    "the other peer's": {"name": "p3.orders.spillover"},
    "its own": {"name": "p1.orders.spillover"},
    "a peer's": {},
    "ended": {"ends": timedelta(seconds=-1)},
    "another CA's": {"by": Authority("another")},
}


def may(caller, path):
    """A probe may come from any peer, an object from the one that has it alone."""
    return caller == "a peer's" or (caller == "the other peer's" and path == PROBE_PATH)


@pytest.mark.slow
async def test_every_door_of_producers_is_open_to_those_it_is_for_and_to_nobody_else(certified):
    """Those who have no certificate, or one that does not hold, get nothing under /peer/; whoever
    shows one that is not believed gets no connection. Other doors are as without."""
    of_peers = [path for path in DOORS if path.startswith("/peer/")]
    assert set(of_peers) == set(SAYS)

    async def told(context, url, path, verb):
        client = HttpClient(url, tls=context)
        body = json.dumps(SAYS.get(path, {})).encode()
        try:
            answer = await client.request(verb, path, body=body, timeout_s=10.0)
        except PeerError:
            return None, None
        finally:
            await client.close()
        reason = json.loads(answer.body)["reason"] if answer.status >= 400 else None
        return answer.status, reason

    files = {name: certified(name) for name in ("p1", "p2", "p3")}
    async with producers(3, certificates=files) as (first, *_):
        for caller, given in CALLERS.items():
            context = trusting_context(files["p1"].ca)
            if given is not None:
                shown = certified("caller", **{"name": "p2.orders.spillover", **given})
                context.load_cert_chain(shown.cert, shown.key)
            is_believed = caller not in ("ended", "another CA's")
            for path in of_peers:
                status, reason = await told(context, first.url, path, "POST")
                if not is_believed:
                    assert status is None, (caller, path, status)
                elif may(caller, path):
                    assert status in (200, 202), (caller, path, reason)
                else:
                    assert (status, reason) == (403, "not_a_neighbor"), (caller, path)
                wrong = await told(context, first.url, path, "GET")
                assert wrong == ((405, "method_not_allowed") if is_believed else (None, None))
            status, _ = await told(context, first.url, "/state", "GET")
            assert status == (200 if is_believed else None), caller


async def test_connections_to_a_peer_end_with_what_either_side_has_shown_there(
    certified, monkeypatch
):
    """When the peer's certificate is over, and when there is a new one to show; not before."""
    files = {name: certified(name) for name in ("p1", "p2")}
    async with producers(2, certificates=files) as (first, _):
        client = first.shell._clients["p2"]
        credentials = first.shell.certified.credentials
        await client.warm(1)
        assert not await credentials.look()
        assert client.idle == 1
        later_s = time.time() + timedelta(days=91).total_seconds()
        with monkeypatch.context() as patch:
            patch.setattr(rotation, "time", SimpleNamespace(time=lambda: later_s))
            assert not await credentials.look()
        await until(lambda: client.idle == 0)
        await client.warm(1)
        certified("p1")
        await credentials.look()  # unless it has by itself
        await until(lambda: client.idle == 0)
        assert client._securing.context is credentials.client
        assert (await client.request("GET", "/healthz", timeout_s=10.0)).status == 200


async def test_a_peer_that_is_another_one_is_not_believed(certified):
    """A url that leads to the wrong producer: nothing is said there."""
    files = {name: certified(name) for name in ("p1", "p2")}
    async with producers(2, certificates=files) as (_, second):
        certified_first = certify(files["p1"], "p1", ["p9"])
        client = HttpClient(second.url, **certified_first.options_of("p9"))
        with pytest.raises(NotBelieved):
            await client.request("GET", "/state", timeout_s=10.0)
        await client.close()
        assert certified_first.credentials.failures["out", "wrong_name"] == 1


@pytest.mark.parametrize(
    ("names", "peers", "words"),
    [
        (
            ["p1.example"],
            ["p2"],
            "with one DNS name (SAN) p1.QUEUE.spillover, got one for p1.exa",
        ),
        (["p1.a.spillover", "p1.b.spillover"], ["p2"], "expected a certificate with one DNS name"),
        (["p1.a.b.spillover"], ["p2"], "expected a certificate with one DNS name"),
        (["p1.a.spillover"], ["P1"], "--peer: expected ids that differ in more than case"),
    ],
)
def test_certificates_that_name_no_producer_are_refused(authority, tmp_path, names, peers, words):
    """In one line, before anything is served. Without peers any will do."""
    files = put(tmp_path, "p1", authority.sign(*names), authority)
    with pytest.raises(InputError) as raised:
        certify(files, "p1", peers)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert certify(files, "p1", []).why_not(None) is not None
