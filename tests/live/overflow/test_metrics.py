"""What a node counts of itself, read where its server reads it."""

import asyncio

import pytest

from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.live.engine.timers import Timers
from spillover.live.overflow.metrics import NodeMetrics
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Waiters
from spillover.model.request import DONE, FAILED, Answer, Outcome, Refusal
from support.typed_sites import Site, linked, plain, unlike


def told_by(node, kind):
    """The samples of this node's metrics of one kind. Labels are in the order of their names, the
    cluster left out."""
    return told_in(node.shell.metrics, kind)


def told_in(metrics, kind):
    told = {}
    for family in metrics.registry.collect():
        if family.type != kind or not family.name.startswith("spillover_"):
            continue
        for sample in family.samples:
            labels = sorted(sample.labels.items())
            values = (value for name, value in labels if name != "cluster")
            told[(sample.name.removeprefix("spillover_"), *values)] = sample.value
    return told


def counts(node):
    """Of what only grows, and has."""
    return {key: value for key, value in told_by(node, "counter").items() if value}


async def test_each_request_is_counted_once_where_it_ends_and_where_it_went(nodes):
    """One is done here, one at the neighbor, and one finds no place at either."""
    clusters = {"a": {"queue_limit": 0}, "b": {"queue_limit": 0}}
    topology = nodes.topology_of("a", "b", clusters=clusters)
    async with nodes.Federation(topology) as federation:
        a, b = federation["a"], federation["b"]
        await nodes.until(lambda: all(a.machine.neighbors.accepting))
        sent = []
        for node in (a, b):
            sent.append(a.post({"service_ms": 300}))
            await nodes.until(lambda node=node: node.machine.servers.busy == 1)
        assert told_by(a, "gauge")["servers_busy",] == 1
        assert told_by(b, "gauge")["ledger", "running", "foreign"] == 1
        assert (await a.post({"service_ms": 1})).status == 429
        for answer in sent:
            assert (await answer).status == 200
        told = counts(a)
        ends = {key[1:]: count for key, count in told.items() if key[0] == "requests_total"}
        assert ends == {("done",): 2, ("refused",): 1}
        assert told["refusals_total", "queue_full"] == 1
        # The third may have been sent there, too, and refused.
        refused = told.get(("forwards_total", "b", "refused"), 0)
        assert told["handed_total", "push", "b"] == 1 + refused
        assert told["forwards_total", "b", "answered"] == 1
        assert counts(b)["received_total", "a", "done"] == 1
        assert told_by(a, "gauge")["ledger", "done", "home"] == 2


@pytest.fixture
def of():
    """Makes the metrics of a machine that nobody runs."""
    loop = asyncio.new_event_loop()
    timers = Timers(loop)

    def make(*clusters, site=None):
        machine = (site or Site(linked(*clusters))).machine
        return NodeMetrics(machine, timers, IdempotencyTable(60.0, 100, 10**6))

    yield make
    timers.close()
    loop.close()


def grown(metrics):
    """Of the counters, those above zero."""
    return {key: value for key, value in told_in(metrics, "counter").items() if value}


def test_what_took_how_long_is_told_of_what_was_done_alone(of):
    metrics = of(plain("a"), plain("b"))
    metrics.home_ended(Answer(DONE, ("a",), None, None, 0.5, 0.25, 3.0))
    metrics.home_ended(Answer(DONE, ("a", "b", "c"), None, None, 1.0, 0.0, 0.125))
    metrics.home_ended(Answer(FAILED, ("a", "b"), None, "why", 9.0, 9.0, 9.0))
    metrics.home_refused(Refusal.DRAINING)
    told = told_in(metrics, "histogram")
    for name, total in (("system_time_seconds", 4.875), ("queue_wait_seconds", 1.5), ("hops", 2)):
        assert (told[f"{name}_sum",], told[f"{name}_count",]) == (total, 2), name
    assert (told["hops_bucket", "0.0"], told["hops_bucket", "2.0"]) == (1, 2)
    assert metrics.answered == (2, 4.875)
    assert grown(metrics) == {
        ("requests_total", "done"): 2,
        ("requests_total", "failed"): 1,
        ("requests_total", "refused"): 1,
        ("refusals_total", "draining"): 1,
        ("failures_total", "worker", "failed"): 1,
    }
    assert metrics.ended("done", "failed", "expired") == 3
    recent = metrics.recent.read()
    assert (recent.done, recent.failed, recent.refused) == (2, 1, 1)


def test_a_neighbor_is_counted_from_when_it_joins_until_it_leaves(of):
    """What it has sent before and is answered after that nobody counts."""
    metrics = of(plain("a"), plain("b"), plain("c"))
    metrics.foreign_ended(0, "done")
    metrics.foreign_ended(7, "done")
    for end, number in (("answered", 1), ("refused", 2), ("lost", 3), ("recalled", 4)):
        for _ in range(number):
            metrics.forwarded("b", end)
    metrics.forwards_left[0], metrics.pulls_left[0] = 9, 4
    assert metrics.came_back("b") == {"answered": 1, "refused": 2, "lost": 3, "recalled": 4}
    assert (metrics.handed_to(0), metrics.handed_to(1)) == ((5, 4), (0, 0))
    assert grown(metrics) == {
        ("received_total", "b", "done"): 1,
        ("forwards_total", "b", "answered"): 1,
        ("forwards_total", "b", "refused"): 2,
        ("forwards_total", "b", "lost"): 3,
        ("forwards_total", "b", "recalled"): 4,
        ("handed_total", "push", "b"): 5,
        ("handed_total", "pull", "b"): 4,
    }
    before = set(told_in(metrics, "counter"))
    metrics.joined(5, "d")
    added = set(told_in(metrics, "counter")) - before
    assert {key[0] for key in added} == {
        *("received_total", "forwards_total", "peer_messages_refused_total")
    }
    assert all("d" in key for key in added)
    assert set(metrics.came_back("d").values()) == {0}
    assert metrics.handed_to(5) == (0, 0)
    metrics.left(5, "d")
    metrics.forwarded("d", "lost")
    assert set(told_in(metrics, "counter")) == before


def test_how_old_what_is_known_of_a_neighbor_is_told_once_anything_is_known(of):
    site = Site(linked(plain("a"), plain("b"), plain("c")))
    metrics = of(site=site)
    ages = ("neighbor_state_age_seconds", "neighbor_load_age_seconds")
    assert not any(key[0] in ages for key in told_in(metrics, "gauge"))
    site.hear("b", 0.0)
    told = [key for key in told_in(metrics, "gauge") if key[0] in ages]
    assert sorted(told) == sorted((age, "b") for age in ages)


def test_answers_that_pass_are_counted_where_their_relays_are(of):
    metrics = of(plain("a"))
    relays = Relays(None, Waiters(), None)
    assert metrics.watched(relays) is relays
    relays.on_head(0.25)
    relays.ends["truncated"] += 3
    assert told_in(metrics, "histogram")["passed_head_seconds_sum",] == 0.25
    assert grown(metrics) == {("passed_responses_total", "truncated"): 3}


TYPES = {"llm": "big small", "text": "small"}


def test_requests_for_a_pool_are_counted_by_type_and_all_others_as_other(of):
    metrics = of(unlike("a", TYPES))
    tokens = metrics.tokens
    for kind, answer in (
        ("llm", Answer(DONE, ("a",), None, None, 0.5, 0.25, 3.0)),
        ("llm", Answer(DONE, ("a",), None, None, 0.25, 0.25, 1.0)),
        ("nobody's", Answer(DONE, ("a",), None, None, 2.0, 0.0, 0.0)),
        ("text", Answer(Outcome.EXPIRED, ("a",), None, None, 9.0, 9.0, 9.0)),
    ):
        tokens.home_ended(kind, answer)
    tokens.home_refused("text")
    tokens.home_refused("any")
    assert grown(metrics) == {
        ("type_requests_total", "done", "llm"): 2,
        ("type_requests_total", "done", "other"): 1,
        ("type_requests_total", "expired", "text"): 1,
        ("type_requests_total", "refused", "text"): 1,
        ("type_requests_total", "refused", "other"): 1,
        ("type_queue_wait_seconds_total", "llm"): 0.75,
        ("type_queue_wait_seconds_total", "other"): 2.0,
        ("type_system_time_seconds_total", "llm"): 5.25,
        ("type_system_time_seconds_total", "other"): 2.0,
    }
    assert tokens.ended() == {"llm": 2, "text": 2}
    gauges = told_in(metrics, "gauge")
    for server in ("big", "small"):
        assert gauges["server_up", server] == 1.0
    assert of(plain("a")).tokens is None
