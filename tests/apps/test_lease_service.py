"""The service of a lease member, over real sockets, on a real Redis: what it shows, with Redis and
without, and that nobody who asks can hold the member up."""

import json
import urllib.error
import urllib.request
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from http.client import HTTPConnection

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spillover.apps.http.token_files import TokenFiles
from spillover.apps.lease.doors import TABLE
from spillover.apps.lease.server import LeaseService
from spillover.inputs.api_tokens import dump_api_token, new_api_token
from spillover.live.leases.thread import LeaseGroupThread
from spillover.live.tls.contexts import trusting_context
from spillover.model.access import Role
from spillover.model.lease_times import LeaseTimes
from spillover.model.signals.leases import LEASE_SIGNALS
from support import waiting
from support.api_tokens import SECRETS, shown_by

TIMES = LeaseTimes(
    normal_lease_ms=300,
    max_lease_ms=1500,
    max_shutdown_ms=300,
    min_grab_ms=100,
    held_delay_ms=5,
)

PARTITIONS = 6
LIMIT_S = 60.0


def works(partition, epoch, stop_event):
    stop_event.wait()


until = partial(waiting.until, limit_s=LIMIT_S)


def ask(url, method="GET", headers=()):
    """(status, content type, body)"""
    request = urllib.request.Request(url, method=method, headers=dict(headers))  # noqa: S310 - our own
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:  # noqa: S310
            return answer.status, answer.headers["content-type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read()


def ask_json(url, method="GET"):
    status, _, body = ask(url, method)
    return status, json.loads(body)


class Member:
    """One that is served: `url`, the member in its thread, and what serves it."""

    def __init__(self, url, thread, service):
        self.url = url
        self.thread = thread
        self.service = service

    @property
    def state(self):
        status, found = ask_json(f"{self.url}/state")
        assert status == 200
        return found

    @property
    def readiness(self):
        status, found = ask_json(f"{self.url}/readyz")
        return status, found.get("reason")


@pytest.fixture
def members(redis_servers, redis_server):
    """For `with`: a served member of a group that no other test has."""
    group = redis_servers.new_name()

    @contextmanager
    def make(
        node,
        handler=works,
        *,
        url=redis_server.url,
        enter=True,
        token_files=None,
        credentials=None,
        **settings,
    ):
        settings = {"partitions": PARTITIONS, "times": TIMES, "seed": 1, **settings}
        thread = LeaseGroupThread(url, group, node=node, handler=handler, **settings)
        service = LeaseService(thread._member, ("127.0.0.1", 0), token_files, credentials)
        with service as place, ExitStack() as ends:
            if enter:
                ends.enter_context(thread)
            yield Member(place, thread, service)

    return make


def test_every_member_shows_the_whole_group(members):
    """Who holds what, at which epoch, for how long; counts of all members."""
    with members("a") as a, members("b") as b:
        until(lambda: (len(a.thread.held), len(b.thread.held)) == (3, 3))
        seen = until(lambda: (s := b.state) and [m["held"] for m in s["members"]] == [3, 3] and s)
        assert (seen["node"], seen["state"], seen["rule"]) == ("b", "member", "guarded")
        assert (seen["partitions"], seen["draining"]) == (PARTITIONS, False)
        assert {int(p): epoch for p, epoch in seen["held"].items()} == b.thread.held
        assert [m["node"] for m in seen["members"]] == ["a", "b"]
        assert all(0 < m["alive_for_ms"] <= 1500 for m in seen["members"])
        held = {**dict.fromkeys(a.thread.held, "a"), **dict.fromkeys(b.thread.held, "b")}
        assert {row["partition"]: row["node"] for row in seen["allocation"]} == held
        epochs = {**a.thread.held, **b.thread.held}
        for row in seen["allocation"]:
            assert row["epoch"] == epochs[row["partition"]]
            assert 0 < row["lease_ms_left"] <= 1500
            assert row["since_ms"] <= seen["redis_now_ms"]
            assert row["stopping"] is False
        assert seen["redis"] == {"up": True, "problem": None}
        assert seen["as_of_s"] < LIMIT_S
        until(lambda: b.state["renewal"]["kind"] == "process")
        assert seen["renewal"]["lag_ms_max"] >= 0
        assert a.readiness == b.readiness == (200, None)


def test_with_a_certificate_it_is_https_and_files_are_read_again(members, tmp_path, monkeypatch):
    """At once where it is told to: certificates and API tokens."""
    pytest.importorskip("cryptography")
    from spillover.live.tls.rotation import Credentials
    from support.certificates import Authority, put

    monkeypatch.setattr("spillover.live.tls.rotation.LOOK_S", 3600.0)
    monkeypatch.setattr("spillover.apps.http.token_files.LOOK_S", 3600.0)
    authority, tokens = Authority(), tmp_path / "tokens.yaml"

    def certify(**dates):
        return put(tmp_path, "a", authority.sign(addresses=["127.0.0.1"], **dates), authority)

    def let_in(secret):
        tokens.write_text(dump_api_token(new_api_token("reader", secret, "", [Role.READ])))

    files = certify()
    let_in("one")
    context = trusting_context(files.ca)
    given = TokenFiles([str(tokens)]), Credentials(replace(files, ca=None), None)
    with members("a", enter=False, token_files=given[0], credentials=given[1]) as a:
        assert a.url.startswith("https://127.0.0.1:")

        def metrics(secret):
            shown = {"Authorization": f"Bearer {secret}"}
            request = urllib.request.Request(f"{a.url}/metrics", headers=shown)  # noqa: S310
            with urllib.request.urlopen(request, context=context, timeout=LIMIT_S) as answer:  # noqa: S310
                return answer.read().decode()

        def ends():
            (line,) = [x for x in metrics("two").splitlines() if 'node="a",of="own"' in x]
            return line

        assert 'spillover_tls_certificate_not_after_seconds{node="a",of="own"}' in metrics("one")
        let_in("two")
        read_again(a)
        until(lambda: unless_turned_away(lambda: metrics("two")))
        before = ends()
        certify(ends=timedelta(days=7))
        read_again(a)
        until(lambda: ends() != before)


def read_again(member):
    for reread in member.service.rereads:
        reread()


def unless_turned_away(ask_it):
    """What it gives; None as long as that is 401."""
    try:
        return ask_it()
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        return None


def test_with_api_tokens_it_is_for_who_has_one(members, tmp_path):
    """As a node; the member itself needs none, whatever its file says later."""
    file = tmp_path / "tokens.yaml"
    roles = {"reader": Role.READ, "operator": Role.OPERATE}
    made = [new_api_token(name, SECRETS[name], "", [role]) for name, role in roles.items()]
    file.write_text("".join(map(dump_api_token, made)))
    with members("a", token_files=TokenFiles([str(file)])) as a:

        def status(path, caller, method="GET"):
            return ask(f"{a.url}{path}", method, dict(text(shown_by(caller))))[0]

        for path in ("/state", "/metrics"):
            callers = (None, "wrong", "reader", "operator")
            assert [status(path, one) for one in callers] == [401, 401, 200, 200]
        assert [status(path, None) for path in ("/healthz", "/docs", "/console")] == [200] * 3
        assert status("/admin/drain", "reader", "POST") == 403
        assert status("/admin/config", "operator") == 404
        described = json.loads(ask(f"{a.url}/openapi.json")[2])
        assert "401" in described["paths"]["/admin/drain"]["post"]["responses"]
        assert not [path for path in described["paths"] if TABLE.needs_of(path) is None]
        assert status("/admin/drain", "operator", "POST") == 202
        until(lambda: not a.thread.held)


def text(headers):
    return ((name.decode(), value.decode()) for name, value in headers)


def test_metrics_tell_every_signal(members):
    """With the label `node`; epochs of what is held now, no others."""
    with members("a") as a:
        until(lambda: len(a.thread.held) == PARTITIONS)
        until(lambda: _metric(a, "spillover_lease_renew_lag_seconds_count") > 0)
        families = _families(a)
        for signal_ in LEASE_SIGNALS:
            family = families[signal_.name.removesuffix("_total")]
            assert family.type == signal_.kind
            assert family.samples, signal_.name
            for sample in family.samples:
                assert sample.labels["node"] == "a"
                assert {"node", *signal_.labels} <= set(sample.labels)
        told = families["spillover_lease_epoch"].samples
        assert {int(s.labels["partition"]): s.value for s in told} == a.thread.held
        assert _metric(a, "spillover_lease_held") == PARTITIONS
        assert _metric(a, "spillover_lease_moves_total") == PARTITIONS
        assert _metric(a, "spillover_lease_redis_up") == 1
        with members("b") as b:
            until(lambda: len(b.thread.held) == 3)
            until(lambda: len(_families(a)["spillover_lease_epoch"].samples) == 3)


def _families(member):
    status, content_type, body = ask(f"{member.url}/metrics")
    assert status == 200
    assert content_type.startswith("text/plain")
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def _metric(member, name):
    samples = [s for family in _families(member).values() for s in family.samples]
    (sample,) = [s for s in samples if s.name == name]
    return sample.value


def test_drain_over_http(members):
    """202 at once, not ready any more, and all is the other one's; connections are not kept."""
    with members("a") as a, members("b") as b:
        until(lambda: (len(a.thread.held), len(b.thread.held)) == (3, 3))
        foreign = {"Origin": "http://evil.example"}
        assert ask(f"{a.url}/admin/drain", "POST", foreign)[0] == 403
        status, told = ask_json(f"{a.url}/admin/drain", "POST")
        assert (status, told["node"], told["draining"]) == (202, "a", True)
        assert a.readiness == (503, "draining")
        with closing(HTTPConnection(a.url.removeprefix("http://"))) as kept:
            kept.request("GET", "/state")
            assert kept.getresponse().getheader("connection") == "close"
        assert a.thread.wait(LIMIT_S)
        assert a.state["state"] == "finished"
        until(lambda: len(b.thread.held) == PARTITIONS)
