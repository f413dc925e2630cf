"""What users tell `consume` and `produce`, and what producers hear of it; which producers there
are, and which of them is asked."""

import json
from types import SimpleNamespace

import pytest

from spillover.client import (
    InputError,
    OutcomeUnknown,
    QueueFull,
    Rejected,
    Unreachable,
    consume,
    produce,
)
from spillover.live.http1.trust import Trust
from spillover.live.queue import directory as directory_module
from spillover.live.queue import producing as producing_module
from spillover.live.queue.client_wire import NoProducer
from spillover.live.queue.directory import find_producers
from support.loop import until
from support.scripted_server import RESET, answer, problem, scripted

NOWHERE = "http://127.0.0.1:1"
CREATED = answer(201, {"id": "p1-1"})


def state(producer="p1", **others):
    return answer(200, {"producer": producer, "producers": others})


def given(number=1):
    return answer(
        *(200, b"four"), kind="text/plain", spillover_object=f"p1-{number}",
        spillover_grant=f"g{number}", spillover_producer="p1", spillover_deliveries=1,
        spillover_probes=1, spillover_visibility_ms=60_000,
    )  # fmt: skip


async def test_what_a_consumer_asks_that_is_told_nothing(monkeypatch):
    monkeypatch.delenv("SPILLOVER_TOKEN", raising=False)

    names = []
    while len(names) < 2:
        async with scripted(state(), given(), answer(204)) as producer:
            async with consume(producer.url) as consumer:
                await anext(aiter(consumer))
            body, (_, headers) = json.loads(producer.bodies[1]), producer.seen[1]
        names.append(body["consumer"])
        assert names[-1].startswith("consumer-")
        assert len(names[-1]) == len("consumer-") + 8
        assert body["probe_id"].startswith(f"{names[-1]}-")
        assert (body["max_hops"], body["avoid_visited"]) == (1, True)
        assert body["access"] == {"p1": 1.0}
        assert headers["spillover-deadline-ms"] == "30000.000"
        assert "authorization" not in headers
    assert names[0] != names[1]


@pytest.mark.parametrize(("told", "learns"), [({}, True), ({"access": "uniform"}, False)])
async def test_who_is_not_told_which_to_ask_asks_those_more_that_have_objects(told, learns):
    async with scripted(state(p2=NOWHERE, p3=NOWHERE), given(), answer(204)) as producer:
        consumer = consume(producer.url, **told)
        assert consumer.access == {}
        async with consumer:
            assert consumer.access == pytest.approx(dict.fromkeys(["p1", "p2", "p3"], 1 / 3))
            await anext(aiter(consumer))
            assert (consumer.access["p1"] > 0.34) is learns
        assert consumer.access == {}


@pytest.mark.parametrize(
    ("told", "hops"),
    [
        ({}, 3),
        ({"max_hops": 5}, 4),
        ({"max_hops": 5, "access": {"p1": 0.5, "p3": 0.5, "p4": 0.0}}, 2),
        ({"max_hops": 5, "access": "uniform", "avoid_visited": False}, 5),
    ],
)
async def test_a_probe_that_visits_none_twice_visits_as_many_as_it_may_ask(told, hops):
    """A producer takes no call for more."""
    others = dict.fromkeys(["p2", "p3", "p4"], NOWHERE)
    async with scripted(state(**others), given(), answer(204)) as producer:
        async with consume(producer.url, **told) as consumer:
            await anext(aiter(consumer))
        take = next(body for body in producer.bodies if b"max_hops" in body)
        assert json.loads(take)["max_hops"] == hops


@pytest.mark.parametrize(
    ("access", "complaint"),
    [
        ({"p1": 1.0}, None),
        ({"p1": 1, "p2": 0}, None),
        ({"p1": 0.5, "p2": 0.5 + 9e-7}, None),
        ({"p1": 0.5, "p2": 0.5 + 2e-6}, "expected probabilities that sum to 1, got 1.000002"),
        ({"p1": 0.5, "p2": 0.5 - 2e-6}, "expected probabilities that sum to 1, got 0.999998"),
        ({}, "expected probabilities that sum to 1, got 0"),
        ({"p1": float("nan")}, "access: p1: expected a probability"),
        ({"p1": "1"}, "access: p1: expected a probability, got '1'"),
        ({"p1": True}, "access: p1: expected a probability"),
        ({"p1": 1.5, "p2": -0.5}, "access: p1: expected a probability, got 1.5"),
        ({"p1": -0.5, "p2": 1.5}, "access: p1: expected a probability, got -0.5"),
        ({7: 1.0}, "access: expected ids of producers, got 7"),
        (["uniform"], "access: expected uniform, learned or probabilities by producer"),
    ],
)
def test_probabilities_are_such(access, complaint):
    if complaint is None:
        consume(NOWHERE, access=access)
        return
    with pytest.raises(InputError) as told:
        consume(NOWHERE, access=access)
    assert complaint in str(told.value)


async def test_a_consumer_that_was_stopped_before_it_began_asks_for_nothing():
    async with scripted(state(), given()) as producer:
        consumer = consume(producer.url)
        consumer.stop()
        assert [obj async for obj in consumer] == []
        assert [line for line, _ in producer.seen] == ["GET /state"]
        assert not producer._connections


# --- which producers there are ----------------------------------------------------------------


async def test_any_producer_knows_the_others_and_a_url_that_was_told_holds():
    said = state("p1", p1="http://inside:1", p2="http://inside:2")
    async with scripted(said) as one, scripted(state("p2")) as two, scripted(RESET) as dead:
        urls = [f"{one.url}/", dead.url, NOWHERE]
        headers = ((b"authorization", b"Bearer x"),)
        found = await find_producers(urls, Trust(None), headers)
        assert found == {"p1": one.url, "p2": "http://inside:2"}
        assert one.seen[0][1]["authorization"] == "Bearer x"
        found = await find_producers([one.url, two.url], Trust(None))
        assert found == {"p1": one.url, "p2": two.url}
        await until(lambda: not (one._connections or two._connections))


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (problem(401, "unauthorized"), Rejected, "status 401 unauthorized"),
        (problem(403, "forbidden"), Rejected, "status 403 forbidden"),
        (problem(404, "not_found"), InputError, "expected a producer of a queue, found none there"),
        (answer(200, b"<html>"), InputError, "expected a producer of a queue, found none there"),
        (RESET, Unreachable, "none of the producers can be reached"),
    ],
)
async def test_who_is_no_producer_or_lets_nobody_in_is_told(said, error, words):
    async with scripted(said) as there:
        with pytest.raises(error, match=words):
            await find_producers([there.url], Trust(None))
        await until(lambda: not there._connections)


async def test_a_producer_that_does_not_answer_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(directory_module, "ANSWER_S", 0.05)

    async with scripted(b"") as silent:
        with pytest.raises(Unreachable, match=r"0\.05 s"):
            await find_producers([silent.url], Trust(None))


# --- putting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"content_type": "text/plain\r\nx: y"}, "content_type: expected printable ASCII"),
        ({"content_type": "tëxt"}, "content_type: expected printable ASCII"),
        ({"deadline_s": 0.0}, "deadline_s: expected seconds above 0 to 604800, got 0.0"),
        ({"deadline_s": 604_801.0}, "deadline_s: expected seconds above 0 to 604800"),
    ],
)
async def test_what_a_put_cannot_mean_is_told_and_sends_nothing(told, words):
    async with scripted(CREATED) as producer, produce(producer.url) as queue:
        with pytest.raises(InputError) as raised:
            await queue.put(b"x", **told)
        assert words in str(raised.value)
        assert producer.seen == []
    if "deadline_s" in told:
        with pytest.raises(InputError, match="deadline_s"):
            produce(NOWHERE, **told)


@pytest.mark.parametrize(
    ("said", "error", "next_is_asked"),
    [
        (problem(503, "draining"), None, True),
        (problem(429, "queue_full"), None, True),
        (problem(413, "too_large"), Rejected, False),
        (answer(500), OutcomeUnknown, False),
        (answer(200, {"id": "p1-1"}), OutcomeUnknown, False),
        (answer(201, b"<html>"), NoProducer, False),
        (RESET, OutcomeUnknown, False),
    ],
)
async def test_where_an_object_is_put_if_the_first_producer_does_not_take_it(
    said, error, next_is_asked
):
    """Nowhere else where it may have been taken all the same, or would be by none."""
    taken = answer(201, {"id": "p2-1"})
    async with (
        scripted(said) as one,
        scripted(taken) as two,
        produce([one.url, two.url]) as queue,
    ):
        if error is None:
            assert await queue.put(b"x") == "p2-1"
        else:
            with pytest.raises(error):
                await queue.put(b"x")
        assert (len(one.seen), len(two.seen)) == (1, int(next_is_asked))


async def test_a_producer_that_could_not_be_reached_is_asked_last_for_a_while(monkeypatch):
    now_s = [1_000.0]
    monkeypatch.setattr(producing_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    async with scripted(CREATED) as there, produce([NOWHERE, there.url]) as queue:
        assert queue._in_turn() == [NOWHERE, there.url]
        assert await queue.put(b"x") == "p1-1"
        for passed_s, first in ((0.0, there.url), (0.99, there.url), (1.01, NOWHERE)):
            now_s[0] = 1_000.0 + passed_s
            assert queue._in_turn()[0] == first


async def test_once_its_time_is_over_an_object_is_offered_to_nobody_else(monkeypatch):
    """What the first one said is the answer, although the second one might have a place."""
    times_s = iter([0.0, 0.0, 0.0, 5.0])
    monkeypatch.setattr(producing_module, "time", SimpleNamespace(monotonic=times_s.__next__))

    async with scripted(problem(429, "queue_full")) as one, scripted(CREATED) as two:
        async with produce([one.url, two.url], deadline_s=5.0) as queue:
            with pytest.raises(QueueFull):
                await queue.put(b"x")
        assert (len(one.seen), two.seen) == (1, [])
