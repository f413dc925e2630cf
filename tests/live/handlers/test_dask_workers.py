"""Workers and the scheduler of a Dask cluster that come and go, and what becomes of the requests
there, on a cluster that says what a test has it say.
"""

import asyncio
import platform
import threading

import pytest

from spillover.core.overflow.events import NotStarted
from spillover.live.handlers.dask import call as dask_call
from spillover.live.handlers.dask import connection as dask_connection
from spillover.model.errors import InputError
from spillover.model.request import Outcome
from support.handler_rig import result
from support.loop import until
from support.scripted_dask import DaskServers, ScriptedWorker

HERE = platform.python_version()


def unknown(problem):
    return f"{problem}; whether it did the work is not known"


# --- workers come and go ----------------------------------------------------------------------


async def test_what_a_lost_worker_had_runs_once_more_only_with_a_key(play_dask, dask_log):
    """Before all that waits, and not a third time; what was stopped does not run again."""
    dask = play_dask(ScriptedWorker("w1", 3))
    async with DaskServers(dask) as rig:
        refs = [rig.start(n, keyed=n > 0) for n in range(3)]
        stopped = await rig.sent(3)
        heeded = dask.workers["w1"].spillover_running[stopped.key] = threading.Event()
        rig.workers.stop(refs[2])
        await until(heeded.is_set)
        dask.join(ScriptedWorker("w2"))
        runs = rig.start(3)
        await rig.sent(4)
        waits = rig.start(4)
        dask.leave("w1")
        unkeyed = await rig.end(refs[0])
        problem = unknown("the Dask worker w1 was lost")
        assert (unkeyed.outcome, unkeyed.problem) == (Outcome.FAILED, problem)
        assert (await rig.end(refs[2])).outcome is Outcome.CANCELLED
        await dask.settled()
        assert len(dask.sent) == 4
        dask.sent[3].answer(dask_call.DONE, b"3")
        assert result(await rig.end(runs)) == 3
        again = await rig.sent(5)
        assert (again.id, again.address) == ("r2", "w2")
        assert again.key != dask.sent[1].key
        dask.leave("w2")
        problem = unknown("the Dask worker w2 was lost")
        assert (await rig.end(refs[1])).problem == problem
        left = await rig.end(waits)
        assert isinstance(left, NotStarted)
        assert left.problem == f"the Dask cluster at {dask.address} has no workers"
        assert rig.health() == [False]
    lost = [fields["worker"] for words, fields in dask_log() if words == "Dask worker lost"]
    assert lost == ["w1", "w2"]


async def test_another_process_at_a_workers_address_is_another_worker(play_dask):
    """It has begun nothing of what it is sent for the one before it, and is greeted anew. Whether
    that one had begun is not known."""
    dask = play_dask(ScriptedWorker("w1", 2), ScriptedWorker("w2"))
    async with DaskServers(dask) as rig:
        refs = [rig.start(1, keyed=key) for key in (True, False)]
        first = (await rig.sent(2)).given[0]
        assert dask.sent_to("w1") == ["r1", "r2"]
        dask.workers["w1"] = ScriptedWorker("w1", 2)
        for sent in dask.sent[:]:
            sent.answer(dask_call.NOT_BEGUN, "")
        unkeyed = await rig.end(refs[1])
        assert unkeyed.problem == unknown("the Dask worker w1 was lost")
        again = await rig.sent(3)
        assert (again.id, again.address) == ("r1", "w2")
        again.answer(dask_call.DONE, b"7")
        assert result(await rig.end(refs[0])) == 7
        await rig.slots(3)
        rig.start(2)
        sent = await rig.sent(4)
        assert sent.address == "w1"
        assert first != sent.given[0] == dask.workers["w1"].spillover_token


@pytest.mark.parametrize("fits", [True, False])
async def test_a_worker_that_is_replaced_before_anybody_looks(play_dask, fits):
    """The scheduler tells: what was there is not known, and the new one is met, whatever the old
    one was."""
    replaced = ScriptedWorker("w1", python=None if fits else "2.7.18")
    dask = play_dask(replaced, ScriptedWorker("w2"))
    async with DaskServers(dask) as rig:
        if fits:
            ref = rig.start(1)
            await rig.sent(1)
        dask.workers["w1"] = ScriptedWorker("w1", 2)
        dask.tell({"action": "remove-worker", "worker": "w1"})
        await rig.slots(3)
        if fits:
            assert (await rig.end(ref)).problem == unknown("the Dask worker w1 was lost")


async def test_who_goes_while_being_met_is_not_used(play_dask):
    """One that came to its address is met by itself; and the old one's word counts no more, be it
    that the scheduler went."""
    dask = play_dask()
    async with DaskServers(dask) as rig:
        slow, scheduler_goes = ScriptedWorker("w1", 5), ScriptedWorker("w2", 7)
        for worker in (slow, scheduler_goes):
            worker.answers = asyncio.Event()
            dask.join(worker)
        await until(lambda: len(rig.session._greeting) == 2)
        dask.workers["w1"] = ScriptedWorker("w1", 2)
        dask.tell({"action": "remove-worker", "worker": "w1"})
        await rig.slots(2)
        dask.lost = OSError("gone")
        del dask.workers["w2"]
        dask.tell({"action": "add-worker", "worker": "w9"})
        await rig.slots(0)
        dask.lost = None
        await rig.slots(2)
        for worker in (slow, scheduler_goes):
            dask.do(worker.answers.set)
        await dask.settled()
        assert rig.session._pool.slots == 2


async def test_what_was_stopped_and_has_not_begun_is_no_sign_of_another_process(play_dask):
    """A worker says so, too, of what nobody wants any more."""
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        sent = await rig.sent(1)
        heeded = dask.workers["w1"].spillover_running[sent.key] = threading.Event()
        rig.workers.stop(ref)
        await until(heeded.is_set)
        looks = dask.looks
        sent.answer(dask_call.NOT_BEGUN, "")
        assert (await rig.end(ref)).outcome is Outcome.CANCELLED
        await dask.settled()
        assert (dask.looks, rig.health()) == (looks, [])
        rig.start(2)
        assert (await rig.sent(2)).given[0] == sent.given[0]


async def test_a_worker_that_cannot_be_greeted_is_met_at_the_next_look(play_dask, dask_log):
    other = ScriptedWorker("w2", python="3.9.1")

    dask = play_dask()
    broken = ScriptedWorker("w1", 2)
    async with DaskServers(dask) as rig:
        broken.broken = OSError("no way")
        dask.join(broken)
        await until(lambda: [words for words, _ in dask_log() if "greeted" in words])
        broken.broken = None
        dask.join(other)
        await rig.slots(2)
        await until(lambda: rig.session._unfit)
        assert rig.session._greeting == {}
    said = dict(dask_log())
    assert said["Dask worker cannot be greeted"] == {
        "worker": "w1",
        "reason": "OSError: no way",
    }
    assert said["Dask worker is not used"] == {
        "worker": "w2",
        "reason": f"it has Python 3.9.1, not {HERE}: functions cannot travel",
    }


async def test_who_has_gone_is_forgotten(play_dask):
    """What is at its address then is met anew: one that could not be used, or was being met."""
    dask = play_dask()
    async with DaskServers(dask) as rig:
        dask.join(ScriptedWorker("w1", python="2.7.18"))
        await until(lambda: rig.session._unfit)
        dask.workers["w1"] = ScriptedWorker("w1")
        dask.tell({"action": "add-worker", "worker": "w9"})
        await dask.settled()
        assert rig.session._pool.slots == 0, "as far as anybody has told"
        dask.leave("w1")
        await until(lambda: not rig.session._unfit)
        dask.join(ScriptedWorker("w1"))
        await rig.slots(1)
        # At a look, without a word of the scheduler.
        dask.join(ScriptedWorker("w2", python="2.7.18"))
        await until(lambda: rig.session._unfit)
        del dask.workers["w2"]
        rig.session._there(rig.session._connection.look_now)
        await until(lambda: not rig.session._unfit)


async def test_what_anybody_tells_is_no_reason_to_look(play_dask):
    """Topics are open to all who are connected: only what a scheduler says of workers counts."""
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        await rig.slots(1)
        await dask.settled()
        looks = dask.looks
        retired = {"action": "retire", "worker": "w1"}
        for event in ("remove-worker", ["add-worker"], None, retired, {}):
            dask.tell(event)
        await dask.settled()
        assert (dask.looks, rig.session._pool.slots) == (looks, 1)
        dask.tell({"action": "add-worker", "worker": "w9"})
        await until(lambda: dask.looks == looks + 1)
        dask.tell({"action": "remove-worker", "worker": "w9"})
        await until(lambda: dask.looks == looks + 2)
        assert rig.session._pool.slots == 1


async def test_a_worker_without_slots_is_not_one(play_dask):
    dask = play_dask(ScriptedWorker("w1", 0))
    async with DaskServers(dask) as rig:
        assert dask.workers["w1"].state.tasks == {}
        assert not hasattr(dask.workers["w1"], "spillover_token"), "nobody has met it"
        dask.workers["w1"].slots = 3
        dask.tell({"action": "add-worker", "worker": "w1"})
        await rig.slots(3)


# --- the scheduler ----------------------------------------------------------------------------


async def test_a_scheduler_that_is_lost_and_comes_back(play_dask, dask_log):
    """What was there is not known, what waited is the node's again, and nothing is left of the
    workers as they were. It is tried however often that fails."""
    dask = play_dask(ScriptedWorker("w1", 2))
    async with DaskServers(dask) as rig:
        refs = [rig.start(n, keyed=n == 1) for n in range(3)]
        await rig.sent(2)
        dask.join(ScriptedWorker("w2", 2, python="2.7.18"))
        await until(lambda: rig.session._unfit)
        dask.away = OSError("nobody")
        dask.lost = OSError("gone")
        dask.tell({"action": "add-worker", "worker": "w9"})
        problem = f"the Dask scheduler at {dask.address} was lost: OSError: gone"
        ended = await rig.end(refs[0])
        assert (ended.outcome, ended.problem) == (Outcome.FAILED, unknown(problem))
        for ref in refs[1:]:  # also the one that would run once more: nothing is there
            left = await rig.end(ref)
            assert isinstance(left, NotStarted)
            assert left.problem == problem
        assert rig.told[1] is False, "before what waited, which must not come here again"
        await until(lambda: dask.clients[0].status == "closed")
        await until(lambda: len(dask.clients) >= 4)
        assert isinstance(await rig.run(1), NotStarted)
        dask.workers["w1"].slots = 1
        dask.workers["w2"].python = HERE
        dask.lost = None
        dask.away = None  # last: it is looked for all the time
        await until(lambda: rig.health() == [False, True])
        await rig.slots(3)
        ref = rig.start(5)
        (await rig.sent(3)).answer(dask_call.DONE, b"5")
        assert result(await rig.end(ref)) == 5
    assert {client.status for client in dask.clients} == {"closed"}
    said = [(words, fields) for words, fields in dask_log() if "scheduler" in words]
    where = {"upstream": dask.address}
    assert said[0] == ("Dask scheduler lost", {**where, "reason": "OSError: gone"})
    away = ("Dask scheduler still away", {**where, "reason": "OSError: nobody"})
    assert said[1:-1] == [away] * (len(dask.clients) - 2)
    assert said[-1] == ("Dask scheduler is back", where)


async def test_a_result_that_breaks_with_the_connection_is_told_once_that_is_known(play_dask):
    """Not as a failure of its own: it may have run, as all else that was there."""
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        sent = await rig.sent(1)
        dask.clients[0].status = "closed"
        sent.fail(OSError("broken"))
        ended = await rig.end(ref)
        problem = f"the Dask scheduler at {dask.address} was lost: ConnectionError: "
        assert ended.problem == unknown(f"{problem}the connection broke")
        await until(lambda: rig.health() == [False, True])


async def test_a_scheduler_that_says_nothing_is_lost(play_dask, monkeypatch):
    monkeypatch.setattr(dask_connection, "LOOK_LIMIT_S", 3600.0)
    monkeypatch.setattr(dask_connection, "STATUS_EVERY_S", 0.01)

    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        await rig.sent(1)
        monkeypatch.setattr(dask_connection, "LOOK_LIMIT_S", 0.05)
        dask.is_silent = True
        rig.session._there(rig.session._connection.look_now)
        problem = f"the Dask scheduler at {dask.address} was lost: it said nothing for 0.05 s"
        assert (await rig.end(ref)).problem == unknown(problem)
        monkeypatch.setattr(dask_connection, "LOOK_LIMIT_S", 3600.0)
        dask.is_silent = False
        await until(lambda: rig.health() == [False, True])


@pytest.mark.parametrize("how", ["away", "stuck"])
async def test_a_node_ends_whatever_its_scheduler_does(play_dask, monkeypatch, how):
    monkeypatch.setattr(dask_connection, "CLOSE_S", 0.05)

    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        if how == "away":
            dask.away = dask.lost = OSError("gone")
            rig.session._there(rig.session._connection.look_now)
            await until(lambda: len(dask.clients) >= 3)
        else:
            dask.is_stuck = True
    assert not rig.session._thread.is_alive()
    assert rig.session._connection.client is None


@pytest.mark.parametrize("fits", [False, True])
async def test_a_node_starts_where_a_worker_has_the_function(play_dask, fits):
    workers = [ScriptedWorker("w1", python="2.7.18")]
    workers += [ScriptedWorker("w2")] * fits

    dask = play_dask(*workers)
    if fits:
        async with DaskServers(dask) as rig:
            assert (rig.session._pool.slots, rig.health()) == (1, [])
    else:
        with pytest.raises(InputError) as raised:
            DaskServers(dask)
        told = f"Dask worker w1 has Python 2.7.18, not {HERE}: functions cannot travel"
        assert str(raised.value) == f"test: cluster a: handler: {told}"
    assert [client.status for client in dask.clients] == ["closed"]


async def test_a_node_starts_where_no_worker_is_yet(play_dask, dask_log):
    dask = play_dask()
    async with DaskServers(dask) as rig:
        await until(lambda: rig.health() == [False])
        assert isinstance(await rig.run(1), NotStarted)
        assert rig.session._requests == {}, "it is the node's again"
        dask.join(ScriptedWorker("w1"))
        await until(lambda: rig.health() == [False, True])
    assert dask_log()[0][0] == "no worker slots that can be used"


async def test_after_its_end_nothing_is_told(play_dask):
    """What runs there is the scheduler's business, and what comes too late is nobody's."""
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        rig.start(1)
        await rig.sent(1)
    assert dask.clients[0].status == "closed"
    assert not rig.session._thread.is_alive()
    assert rig.session._thread.daemon, "where it does not end, the node does"
    rig.start(2)
    rig.workers.stop(1)
    rig.workers.ended(1, dask_call.DONE, b"1", "")
    rig.workers.not_begun(1, "no")
    assert rig.told == []


async def test_what_is_stopped_as_it_comes_back_is_cancelled(play_dask):
    dask = play_dask(ScriptedWorker("w1"))
    async with DaskServers(dask) as rig:
        ref = rig.start(1)
        rig.workers.stop(ref)
        rig.workers.not_begun(ref, "no workers")
        assert (await rig.end(ref)).outcome is Outcome.CANCELLED
        await dask.settled()
        assert (len(rig.told), rig.workers._stopped) == (1, set())
