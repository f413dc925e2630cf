"""What a node asks of a Dask cluster, and what it makes of the answers: on a cluster that says what
a test has it say. How workers come and go is in `test_dask_workers`, real clusters are in
`test_dask_handler`."""

import asyncio
import json
import threading

import pytest

from spillover.core.overflow.events import NotStarted
from spillover.live.handlers.calls import RESULT_LIMIT_BYTES
from spillover.live.handlers.dask import call as dask_call
from spillover.live.handlers.dask import connection as dask_connection
from spillover.live.handlers.dask import session as dask_session
from spillover.model.errors import InputError
from spillover.model.request import Outcome
from support.dask_clusters import FUNCTIONS
from support.handler_rig import result
from support.loop import until
from support.scripted_dask import DaskServers, ScriptedWorker

# --- requests ---------------------------------------------------------------------------------


async def test_a_request_goes_to_one_worker_with_all_that_its_function_is_told(play_dask):
    """And is computed there anew, whatever was computed before."""
    dask = play_dask(ScriptedWorker("w1"), ScriptedWorker("w2"))
    async with DaskServers(dask, "tell") as rig:
        refs = [rig.start({"ä": 1}, type="render") for _ in range(2)]
        await rig.sent(2)
        for sent in dask.sent:
            token, key, names, payload, facts, limit_bytes = sent.given
            worker = dask.workers[sent.address]
            assert token == worker.spillover_token
            assert (names, json.loads(payload)) == ((FUNCTIONS, "tell"), {"ä": 1})
            assert 25_000.0 < facts.pop("remaining_ms") <= 30_000.0
            assert facts == {"id": sent.id, "type": "render", "cluster": "a"}
            assert limit_bytes == RESULT_LIMIT_BYTES
            assert sent.options == {"key": key, "workers": [sent.address], "pure": False}
        assert {sent.address for sent in dask.sent} == {"w1", "w2"}
        assert {sent.id for sent in dask.sent} == {"r1", "r2"}
        assert len({sent.key for sent in dask.sent}) == 2
        first = dask.clients[0]
        assert (first.address, first.options["asynchronous"]) == (dask.address, True)
        assert first.options["set_as_default"] is False
        dask.sent[1].answer(dask_call.DONE, b"[2]")
        dask.sent[0].answer(dask_call.DONE, b"[1]")
        by_id = {sent.id: number for number, sent in enumerate(dask.sent, 1)}
        assert [result(await rig.end(ref)) for ref in refs] == [[by_id["r1"]], [by_id["r2"]]]
        assert rig.session._requests == {}
        assert [worker.running for worker in rig.session._pool._workers.values()] == [0, 0]


async def test_what_finds_no_slot_waits_its_turn(play_dask):
    dask = play_dask(ScriptedWorker("w1", 2))
    async with DaskServers(dask) as rig:
        for _ in range(5):
            rig.start(1)
        await rig.sent(2)
        await dask.settled()
        for number in range(3):
            assert dask.sent_to("w1") == ["r1", "r2", "r3", "r4"][: 2 + number]
            dask.sent[number].answer(dask_call.DONE, b"1")
            await rig.sent(3 + number)
        assert [sent.id for sent in dask.sent] == ["r1", "r2", "r3", "r4", "r5"]


ENDS = {
    "failed": ((dask_call.FAILED, "no", "Traceback"), Outcome.FAILED, "no", None),
    "rejected": ((dask_call.REJECTED, ("no", 404, b"[1]")), Outcome.REJECTED, "no", 404),
    "rejected, without": ((dask_call.REJECTED, ("no", None, None)), Outcome.REJECTED, "no", 422),
}


@pytest.mark.parametrize("case", ENDS)
async def test_what_a_worker_says_of_a_call(play_dask, case):
    said, outcome, problem, status = ENDS[case]

    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        (await rig.sent(1)).answer(*said)
        event = await rig.end(ref)
        assert (event.outcome, event.problem, event.upstream_status) == (
            outcome,
            problem,
            status,
        )
        body = event.upstream_body
        assert (None if body is None else json.loads(bytes(memoryview(body)))) == (
            [1] if status == 404 else None
        )


@pytest.mark.parametrize(("asked_s", "pause_s"), [(7, 7.0), (None, None)])
async def test_what_was_surely_not_run_is_decided_again(play_dask, asked_s, pause_s):
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        (await rig.sent(1)).answer(dask_call.NOT_RUN, ("busy", asked_s))
        event = await rig.end(ref)
        assert isinstance(event, NotStarted)
        assert (event.problem, event.refused) == ("busy", True)
        assert event.retry_after_s == pause_s


async def test_a_result_that_cannot_be_had_is_a_failure_and_its_slot_is_free(play_dask):
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        refs = [rig.start(1) for _ in range(2)]
        (await rig.sent(1)).fail(LookupError("gone"))
        event = await rig.end(refs[0])
        assert (event.outcome, event.problem) == (
            Outcome.FAILED,
            "Dask gave no result: LookupError: gone",
        )
        (await rig.sent(2)).answer(dask_call.DONE, b"1")
        assert result(await rig.end(refs[1])) == 1
        assert rig.health() == []


async def test_a_connection_that_breaks_while_the_scheduler_is_asked(play_dask, monkeypatch):
    """Is noticed long before a busy scheduler would count as lost: Dask goes on to connect."""
    monkeypatch.setattr(dask_connection, "STATUS_EVERY_S", 0.01)
    monkeypatch.setattr(dask_connection, "LOOK_LIMIT_S", 3600.0)

    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        await rig.sent(1)
        looks, dask.is_silent = dask.looks, True
        rig.session._there(rig.session._connection.look_now)
        await until(lambda: dask.looks > looks)
        await dask.settled()
        assert rig.told == []
        dask.clients[0].status = "closed"
        assert "was lost: ConnectionError: the connection broke; " in (await rig.end(ref)).problem


async def test_a_node_starts_though_a_worker_says_nothing(play_dask, monkeypatch):
    monkeypatch.setattr(dask_session, "OPEN_S", 0.05)
    silent = ScriptedWorker("w1")

    dask = play_dask(silent)
    silent.answers = asyncio.Event()
    async with DaskServers(dask) as rig:
        await until(lambda: rig.health() == [False])
        dask.do(silent.answers.set)
        await until(lambda: rig.health() == [False, True])


async def test_a_node_does_not_start_where_the_scheduler_says_nothing(play_dask, monkeypatch):
    """It is not waited for as long as for a busy one."""
    monkeypatch.setattr(dask_session, "OPEN_S", 0.5)
    monkeypatch.setattr(dask_session, "CONNECT_S", 0.5)
    monkeypatch.setattr(dask_connection, "LOOK_LIMIT_S", 3600.0)
    monkeypatch.setattr(dask_connection, "STATUS_EVERY_S", 0.01)

    dask = play_dask(ScriptedWorker("w1"))
    dask.is_silent = True
    with pytest.raises(InputError) as error:
        DaskServers(dask)
    assert f"a Dask scheduler at {dask.address}, got: no answer within 1 s; " in str(error.value)
    await until(lambda: dask.clients)
    dask.clients[0].status = "broken"
    await until(lambda: dask.clients[0].status == "closed")


# --- stopping ---------------------------------------------------------------------------------


async def test_what_waits_ends_as_it_is_stopped(play_dask):
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        refs = [rig.start(1) for _ in range(3)]
        await rig.sent(1)
        for _ in range(2):
            rig.workers.stop(refs[1])
        event = await rig.end(refs[1])
        assert event.outcome is Outcome.CANCELLED
        assert 0.0 < event.service_s < 60.0
        rig.workers.stop(99)
        dask.sent[0].answer(dask_call.DONE, b"1")
        assert (await rig.sent(2)).id == "r3"
        await dask.settled()
        assert dask.cancelled == []
        assert rig.workers._stopped == set()
        assert [one.ref for one in rig.told] == [refs[1], refs[0]]


async def test_what_runs_keeps_its_slot_until_it_has_returned(play_dask):
    """It is told that it is not wanted; what it says then is nobody's business."""
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        rig.start(2)
        sent = await rig.sent(1)
        runs = dask.workers["w1"].spillover_running[sent.key] = threading.Event()
        rig.workers.stop(ref)
        await until(runs.is_set)
        rig.workers.stop(ref)
        await dask.settled()
        assert (rig.told, dask.cancelled, len(dask.sent)) == ([], [], 1)
        sent.answer(dask_call.DONE, b"1")
        event = await rig.end(ref)
        assert (event.outcome, event.result) == (Outcome.CANCELLED, None)
        assert (await rig.sent(2)).id == "r2"
        assert not rig.workers._stopped


async def test_what_was_sent_and_has_not_begun_is_taken_back(play_dask):
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        rig.start(2)
        sent = await rig.sent(1)
        rig.workers.stop(ref)
        assert (await rig.end(ref)).outcome is Outcome.CANCELLED
        assert dask.cancelled == [([sent.key], {"force": True})]
        assert (await rig.sent(2)).id == "r2"
        await dask.settled()
        assert [worker.running for worker in rig.session._pool._workers.values()] == [1]
        assert len(rig.told) == 1


async def test_a_worker_that_cannot_be_told_is_looked_at(play_dask):
    """It may be gone. Until that is known, what it had counts as there."""
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        await rig.sent(1)
        dask.workers["w1"].broken = OSError("no way")
        looks = dask.looks
        rig.workers.stop(ref)
        await until(lambda: dask.looks > looks)
        await dask.settled()
        assert rig.told == []
        del dask.workers["w1"]
        rig.session._there(rig.session._connection.look_now)
        assert (await rig.end(ref)).outcome is Outcome.CANCELLED
        await until(lambda: rig.health() == [False])
