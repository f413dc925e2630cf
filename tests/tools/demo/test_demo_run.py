"""The demos of bursts and of streams at work: looking at clusters, judging ledgers, users."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import socket
import time
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
from rich.console import Console

from spillover.inputs.builtin import builtin_topology
from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Topology
from spillover.tools.demo import load_process, run
from spillover.tools.demo.display import Display
from spillover.tools.demo.run import DemoPlan
from spillover.tools.demo.sampling import Sampler, is_balanced
from spillover.tools.demo.streams import run as streams
from spillover.tools.demo.streams import service
from spillover.tools.demo.streams.model import End, Stream
from support.scripted_server import RESET, answer, done, scripted

HOME = {
    "accepted": 9, "queued": 0, "running": 0, "away": 0, "done": 5, "failed": 1, "expired": 1,
    "refused": 1, "cancelled": 1,
}  # fmt: skip
FOREIGN = {
    "received": 4, "queued": 0, "running": 0, "handed_on": 0, "done": 3, "returned": 1,
}  # fmt: skip
LAST = service.LAST


def state(*, length=0, **held):
    """What a cluster tells; of `home_...` and `foreign_...` so many are not done yet."""
    ledger = {"home": dict(HOME), "foreign": dict(FOREIGN)}
    for name, count in held.items():
        side, _, entry = name.partition("_")
        ledger[side][entry] += count
        ledger[side]["done"] -= count
    return {
        "queue_length": length, "accept_probability": 0.5, "neighborhood_accept_probability": 0.25,
        "forwards": 7, "busy": 3, "servers": 5, "ledger": ledger,
    }  # fmt: skip


def test_a_ledger_balances_if_each_request_is_in_one_entry():
    assert is_balanced(state()["ledger"])
    assert is_balanced(state(home_away=2, foreign_queued=1)["ledger"])
    for side, entry in (
        ("home", "done"),
        ("home", "accepted"),
        ("foreign", "returned"),
        ("foreign", "received"),
    ):
        for by in (-1, 1):
            ledger = copy.deepcopy(state()["ledger"])
            ledger[side][entry] += by
            assert not is_balanced(ledger)


@pytest.mark.parametrize(
    "held",
    [
        "home_queued",
        "home_running",
        "home_away",
        "foreign_queued",
        "foreign_running",
        "foreign_handed_on",
    ],
)
def test_a_request_that_is_not_answered_is_held(held):
    assert run._holds_requests(state(**{held: 1}))
    assert not run._holds_requests(state())


def test_what_clusters_last_told_is_a_sample():
    """One that does not answer keeps its state; a ledger that does not balance is counted each
    time."""
    odd = state(length=4)
    odd["ledger"]["home"]["done"] += 1

    async def story():
        async with (
            scripted(answer(200, state(length=2)), RESET) as one,
            scripted(answer(200, odd)) as two,
        ):
            sampler = Sampler({"a": one.url, "b": two.url})
            assert sampler.sample(0.0).queue_length == {}
            try:
                await sampler.look()
                assert sampler.imbalances == 1
                await sampler.look()
                assert sampler.imbalances == 2
            finally:
                await sampler.close()
            assert [seen for seen, _ in two.seen] == ["GET /state", "GET /state"]
            return sampler.sample(1.5)

    sample = asyncio.run(story())
    assert (sample.time_s, sample.queue_length) == (1.5, {"a": 2, "b": 4})
    assert sample.accept_probability == {"a": 0.5, "b": 0.5}
    assert sample.neighborhood_accept_probability == {"a": 0.25, "b": 0.25}
    assert sample.forwards == {"a": 7, "b": 7}


def test_clusters_are_looked_at_evenly():
    """An answer that is none is told."""

    async def story():
        looks = []
        async with scripted(*[answer(200, state())] * 4, answer(200, b"{")) as one:
            sampler = Sampler({"a": one.url})
            began_s = time.monotonic()
            with pytest.raises(ValueError, match="truncated"):
                await sampler.look_forever(0.03, lambda: looks.append(time.monotonic()))
            await sampler.close()
        assert len(looks) == 4
        assert looks[-1] - began_s >= 0.09

    asyncio.run(story())


PLAN = DemoPlan(
    topology=builtin_topology("ring5"), source="ring5", policy="paper", seed=1, duration_s=9.0,
    time_scale=2.0,
)  # fmt: skip


def test_users_come_as_in_the_paper():
    """10 a second, 50 in a burst of 2 s, the first at 2.3 s, the next 5 s later; here all of it
    takes twice as long. What would come after the end is left out."""
    rates = run._user_rates(PLAN)
    assert list(rates) == ["a", "b", "c", "d", "e"]
    assert rates["a"] == [(0.0, 0.0), (0.6, 5.0), (4.6, 25.0), (8.6, 5.0)]
    assert rates["b"] == [(0.0, 0.0), (0.6, 5.0), (14.6, 25.0)]
    assert rates["e"] == [(0.0, 0.0), (0.6, 5.0)]


def wait_until_quiet(*answers):
    async def story():
        async with scripted(*answers) as one:
            sampler = Sampler({"a": one.url})
            try:
                await run._Run(PLAN, PLAN.topology, [], "isolated", Display())._wait_until_quiet(
                    sampler
                )
            finally:
                await sampler.close()
            return len(one.seen)

    return asyncio.run(asyncio.wait_for(story(), 20.0))


def test_a_run_is_over_when_no_cluster_holds_a_request(monkeypatch):
    held, none = answer(200, state(home_away=1)), answer(200, state())
    assert wait_until_quiet(none) == 1
    assert wait_until_quiet(held, held, none) == 3
    monkeypatch.setattr(run, "QUIET_WITHIN_S", 0.0)
    with pytest.raises(RunError, match="clusters still hold requests although all"):
        wait_until_quiet(held)


def test_what_is_wrong_with_a_topology_is_told_with_the_users_name_of_it(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        topology = Topology(name="one", clusters=(Cluster(id=ClusterId("a"), servers=1, url=url),))
        one = run._Run(replace(PLAN, source="mine.yaml"), topology, [], "isolated", Display())
        with pytest.raises(InputError, match=r"^mine.yaml: clusters\[0\].url: expected an address"):
            asyncio.run(one.go())


def test_time_begins_when_the_generator_is_about_to_send():
    one = run._Run(PLAN, PLAN.topology, [], "isolated", Display())
    before_s = time.monotonic()
    one._on_progress(load_process.Progress(0, 0, 5))
    began_s = one._start_s
    assert before_s + 0.1 <= began_s <= time.monotonic() + 0.1
    one._on_progress(load_process.Progress(1, 0, 5))
    assert one._start_s == began_s


def test_what_is_sent_is_counted_and_summed():
    """By what the process of the load generator does."""

    async def story():
        async with scripted(done()) as one:
            plan = load_process.LoadPlan(
                schedule=[Arrival(0.01 * number, ClusterId("a"), 1.0) for number in range(3)],
                targets={ClusterId("a"): one.url}, seed=4, duration_s=0.25, deadline_ms=900.0,
            )  # fmt: skip
            ours, theirs = multiprocessing.Pipe()
            await asyncio.to_thread(load_process._generate, plan, theirs)
            theirs.close()
            told = []
            while ours.poll(1.0):
                try:
                    told.append(ours.recv())
                except EOFError:
                    break
            ours.close()
            return told, one

    (*progress, summary), one = asyncio.run(story())
    assert (summary["sent"], summary["seed"], summary["duration_s"]) == (3, 4, 0.25)
    assert summary["outcomes"]["ok"] == 3
    assert list(summary["per_cluster"]) == ["a"]
    assert progress[0] == load_process.Progress(sent=0, done=0, total=3)
    assert all(told.done <= told.sent <= told.total == 3 for told in progress)
    assert [headers["spillover-deadline-ms"] for _, headers in one.seen] == ["900"] * 3


# --- what is shown --------------------------------------------------------------------------------


def test_a_run_that_is_no_terminals_is_told_every_few_seconds(capsys):
    display = Display()
    with display.run("isolated queues", 12.0) as showing:
        for time_s in (0.0, 4.9, 5.0, 9.9, 14.0):
            showing.show(time_s, {"a": state(length=3), "b": state()})
    assert capsys.readouterr().err.splitlines() == [
        f"isolated queues: {at} of 12 s, queues a:3 b:0" for at in (0, 5, 12)
    ]


def test_a_terminal_has_a_bar_and_a_row_for_each_cluster(capsys, monkeypatch):
    """The longest queue so far, of ten at least, is as long as a bar can be."""
    monkeypatch.setenv("COLUMNS", "120")
    display = Display()
    display.console = Console(stderr=True, force_terminal=True, width=120, color_system=None)
    with display.run("isolated queues", 12.0) as showing:
        showing.show(-0.1, {"a": state(length=5)})
        showing.show(6.0, {"a": state(length=40), "b": state(length=10)})
        showing.show(7.0, {"a": state(length=20), "b": state(length=0)})
    told = capsys.readouterr().err.splitlines()
    rows = [line.split() for line in told if "3/5" in line]
    assert rows[-2][:6] == ["a", "3/5", "20", "0.50", "0.25", "7"]
    assert rows[-2][6] == "█" * 20
    assert rows[-1] == ["b", "3/5", "0", "0.50", "0.25", "7"]
    assert any("isolated queues" in line and "7 of 12 s" in line for line in told)


# --- streams --------------------------------------------------------------------------------------


def test_three_sites_are_linked_and_have_a_service_each():
    topology = streams._topology({"paris": 1001, "tokyo": 1002, "oslo": 1003})
    assert [(str(c.id), c.server_count, c.handler) for c in topology.clusters] == [
        (site, 6, f"proxy:http://127.0.0.1:{port}")
        for site, port in (("paris", 1001), ("tokyo", 1002), ("oslo", 1003))
    ]
    assert {frozenset(link.between) for link in topology.links} == {
        frozenset(pair) for pair in (("paris", "tokyo"), ("paris", "oslo"), ("tokyo", "oslo"))
    }
    assert topology.policy == "adaptive"
    assert {link.delay_ms for link in topology.links} == {5.0}


def show(url):
    return streams._Show({"paris": url}, lambda _: None, start_s=time.monotonic())


def watched(*answers):
    """What a user has seen of a stream."""

    async def story():
        async with scripted(*answers) as one, httpx.AsyncClient(trust_env=False) as client:
            stream = Stream("paris", 0.0)
            await show(one.url)._watch(client, stream)
            assert [seen for seen, _ in one.seen] == ["GET /stream"]
            return stream

    return asyncio.run(story())


def events(*lines, status=200, path="paris,oslo"):
    body = "".join(f"{line}\n\n" for line in lines).encode()
    return answer(status, body, kind="text/event-stream", spillover_path=path)


def test_a_user_sees_how_a_stream_ends():
    whole = watched(events("data: 0", "data: 1", LAST))
    assert (whole.end, whole.events, whole.ran) == (End.WHOLE, 3, "oslo")
    assert 0.0 < whole.first_s <= whole.ended_s
    short = watched(events("data: 0", "data: 1"))
    assert (short.end, short.events) == (End.SHORT, 2)
    assert watched(events(LAST, status=503)).end is End.REFUSED
    broken = watched(RESET)
    assert (broken.end, broken.ran, broken.first_s) == (End.ERROR, "", None)
    assert broken.ended_s > 0.0


def test_a_site_dies_when_all_have_begun_or_ended(monkeypatch):
    """Or no later than it would anyway."""

    async def story(*seen):
        one = show("")
        one.streams = [Stream("paris", 0.0, first_s=first_s, end=end) for first_s, end in seen]
        await one._all_begun()

    asyncio.run(asyncio.wait_for(story((0.0, None), (None, End.ERROR), (0.5, End.WHOLE)), 5.0))
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(story((0.0, None), (None, None)), 0.1))
    monkeypatch.setattr(streams, "BEGUN_WITHIN_S", 0.05)
    asyncio.run(asyncio.wait_for(story((None, None)), 5.0))


def test_users_come_one_after_the_other():
    async def story():
        async with scripted(events(LAST)) as one, httpx.AsyncClient(trust_env=False) as client:
            shown = show(one.url)
            shown.doors["oslo"] = one.url
            async with asyncio.TaskGroup() as users:
                await shown._come(client, users, {"paris": 2, "oslo": 1})
            return shown.streams

    found = asyncio.run(story())
    assert [(stream.home, stream.end) for stream in found] == [
        ("paris", End.WHOLE), ("paris", End.WHOLE), ("oslo", End.WHOLE),
    ]  # fmt: skip
    begun = [stream.begun_s for stream in found]
    assert begun == sorted(begun)
    assert begun[2] - begun[0] >= 0.08


def balanced(*answers):
    async def story():
        async with scripted(*answers) as one:
            urls = {"paris": one.url, "tokyo": "http://127.0.0.1:1"}
            return await streams._balanced(SimpleNamespace(urls=urls)), len(one.seen)

    return asyncio.run(asyncio.wait_for(story(), 20.0))


def test_ledgers_of_the_living_are_judged_when_they_hold_nothing(monkeypatch):
    none = answer(200, state(foreign_queued=1))
    assert balanced(none) == (True, 1)
    for held in ("home_queued", "home_running", "home_away"):
        assert balanced(answer(200, state(**{held: 1})), none) == (True, 2)
    odd = state()
    odd["ledger"]["home"]["done"] += 1
    assert balanced(answer(200, odd)) == (False, 1)
    monkeypatch.setattr(streams, "QUIET_WITHIN_S", 0.1)
    assert balanced(answer(200, state(home_away=1)))[0] is False


def test_the_service_streams_so_many_events():
    async def story():
        return [piece async for piece in service._numbered(2, 0.0)]

    assert asyncio.run(story()) == ["data: 0\n\n", "data: 1\n\n", "data: [DONE]\n\n"]


def test_a_single_cluster_needs_no_link():
    """As what is drawn of a demo is made for any federation."""
    one = Topology(name="one", clusters=(Cluster(id=ClusterId("a"), servers=1),))
    assert run._user_rates(DemoPlan(
        topology=one, source="one", policy="paper", seed=1, duration_s=0.2, time_scale=1.0
    )) == {"a": [(0.0, 0.0)]}  # fmt: skip
