"""A node's shell by itself: whom it tells of what its machine says, and all that its end closes.
Nobody runs it, so that nothing happens but what a test has happen."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

import msgspec
import pytest

from spillover.core.driver import LATE_S_MIN
from spillover.core.overflow import events as ev
from spillover.live.overflow import shell as module
from spillover.live.overflow.report_lines import NothingToDo, Question, decode_line
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.logs import REQUESTS_LOGGER
from spillover.model.errors import InputError, NotDelivered
from spillover.model.load import LoadNow, LoadReport
from spillover.model.request import DONE, Answer, Outcome, Refusal, Request
from spillover.model.topology import Link
from support.federation import topology_of
from support.loop import turn, until

URLS = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2", "c": "http://127.0.0.1:3"}
LONG = {"service_ms": 60_000.0}
LOAD = LoadNow(1, 2, 3, 0.5, True)
REPORT = LoadReport(1, 1, 1.0, 1.0, 0, 1, accepting=True, hears=("a",))


class Here:
    """The shell of a, between b and c, and what neighbors that listen have heard."""

    def __init__(self, **fields):
        topology = topology_of("b", "a", "c", clusters={"a": LONG | fields}).with_urls(URLS)
        self.shell = NodeShell(topology, "a", seed=1)
        self.handles = self.shell.machine.neighbors.index
        self.feed = self.shell.feed

    def say(self, command):
        """Have it obey this, as if its machine had said it."""
        self.shell.interpreters[type(command)](command)

    def listen(self, cluster):
        heard = []
        self.shell.streams.open(self.handles[cluster], heard.append)
        return heard

    def take(self, name="x", **told):
        request = Request(name, True, msgspec.Raw(b"1"))
        return self.shell.home_requests.take(request, time.monotonic() + 600.0, **told)

    def take_over(self, name="y"):
        request = Request(name, True, msgspec.Raw(b"1"), ("b",))
        deadline_s = time.monotonic() + 600.0
        return self.shell.foreign_requests.take(request, deadline_s, self.handles["b"])

    def counted(self, cluster="b"):
        return self.shell.metrics.handed_to(self.handles[cluster])


@pytest.fixture
def here():
    def run_with(check, **fields):
        async def main():
            at = Here(**fields)
            try:
                await check(at)
            finally:
                await at.shell.close()

        asyncio.run(main())

    return run_with


def test_the_end_of_a_node_closes_all_it_has_and_tells_all_who_wait(here):
    """Those who hold connections open come first."""

    async def check(at):
        shell, order, told = at.shell, [], []
        stream = shell.streams.open(at.handles["b"], lambda _: None)
        for name in ("first", "second"):
            shell.on_close.append(lambda name=name: order.append((name, stream.ended)))
        shell.on_close.append(lambda: told.append(at.take("late").reason))
        entry = at.take()
        shell.waiters.wait(entry.ref, told.append)
        _, foreign = at.take_over()
        rang = []
        shell.timers.at(time.monotonic() + 0.001, rang.append)
        await shell.close()
        assert order == [("first", False), ("second", False)]
        assert stream.ended
        assert told == [Refusal.DRAINING, None]
        assert foreign.cancelled()
        assert not any(shell.left)
        assert (shell.home_requests.closed, shell.foreign_requests.closed) == (True, True)
        with pytest.raises(NotDelivered, match="was closed"):
            await shell.ask_neighbor(at.handles["b"], b"", 5.0)
        assert shell._failed.cancelled()
        await turn(0.01)
        assert rang == [], "timers ring no more"

    here(check)


def test_each_start_of_a_node_is_another_epoch_and_a_later_one(here):
    async def check(at):
        assert at.shell.machine.settings.epoch == at.shell.epoch
        assert at.shell.epoch == pytest.approx(time.time() * 1e3, abs=60_000)

    here(check)


def test_what_would_be_lost_is_what_is_under_way_and_what_nobody_has_fetched(here):
    async def check(at):
        entry = at.take(asynchronous=True)
        at.take_over()
        assert at.shell.left == (2, 0)
        at.feed(ev.ServiceEnded(entry.ref, DONE, 0.1, b"1"))
        assert at.shell.left == (1, 1)

    here(check)


def test_a_drain_is_told_to_the_machine_and_bounded(here):
    async def check(at):
        at.take()
        await at.shell.drain(0.0, 60.0)
        assert at.shell.machine.draining
        assert at.take("y").reason is Refusal.DRAINING

    here(check)


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({"delay_s": 2.0}, (2.0, 0.0, False)),
        ({"loss": 0.5}, (0.0, 0.5, False)),
        ({"cut": True}, (0.0, 0.0, True)),
        ({"delay_s": 2.0, "loss": 0.5, "cut": True}, (2.0, 0.5, True)),
    ],
)
def test_each_fault_of_a_link_is_set_by_itself_and_on_that_link(here, given, faults):
    async def check(at):
        at.shell.set_link(at.handles["b"], **given)
        assert at.shell.link_faults(at.handles["b"]) == faults
        assert at.shell.link_faults(at.handles["c"]) == (0.0, 0.0, False)

    here(check)


def test_a_changed_topology_is_gone_by_everywhere(here):
    """Names, terms, limits of what passes; and whoever goes by it besides is told."""

    async def check(at):
        shell, changes = at.shell, []
        shell.on_change.append(lambda: changes.append(shell.topology.max_hops))
        clusters = tuple(
            replace(one, handler="proxy:http://h", passed_stall_ms=7000.0) if one.id == "a" else one
            for one in shell.topology.clusters
        )
        changed = replace(
            shell.topology, clusters=clusters, max_hops=2, result_ttl_s=5.0, result_limit=7
        )
        shell.go_by(changed)
        assert changes == [2]
        assert shell.cluster is clusters[1]
        assert shell.relays.stall_s == 7.0
        assert (shell.names._ttl_s, shell.names._limit) == (5.0, 7)
        assert shell.peers.agreements[0]._terms.max_hops == 2

    here(check)


def test_links_have_as_many_connections_as_requests_may_be_away(here):
    async def check(at):
        links = at.shell.links.by_handle.values()
        before = {link._client.connections_max for link in links}
        assert len(before) == 1
        at.feed(ev.SettingsChanged(queue_limit=at.shell.machine.settings.queue_limit + 100))
        at.shell.limits_changed()
        assert {link._client.connections_max for link in links} == {before.pop() + 100}

    here(check)


def test_forwards_are_counted_as_they_leave_pulled_ones_twice(here):
    async def check(at):
        for ref, pulled in ((1, False), (2, True), (3, True)):
            request = Request(f"r{ref}", True, msgspec.Raw(b"1"), ("a",))
            told = (ref, at.handles["b"], request, time.monotonic() + 600.0)
            at.say(ev.Forward(*told, pulled=pulled))
        assert (at.counted(), at.counted("c")) == ((1, 2), (0, 0))
        assert len(at.shell.links.by_handle[at.handles["b"]]._ways) == 3

    here(check)


def test_what_nobody_waits_for_any_more_is_recalled(here):
    async def check(at):
        request = Request("r1", True, msgspec.Raw(b"1"), ("a",))
        at.say(ev.Forward(1, at.handles["b"], request, time.monotonic() + 600.0))
        at.say(ev.Recall(1, at.handles["b"]))
        assert at.shell.metrics.came_back("b")["recalled"] == 1
        assert at.shell.links.by_handle[at.handles["b"]]._ways == {}

    here(check)


def test_each_request_of_a_client_is_in_the_log_where_that_is_asked_for(here, caplog):
    async def check(at):
        for level, lines in ((logging.WARNING, 0), (logging.INFO, 1)):
            caplog.set_level(level, REQUESTS_LOGGER)
            entry = at.take(f"x{lines}")
            ref, _ = at.take_over(f"y{lines}")
            for one in (entry.ref, ref):
                at.feed(ev.ServiceEnded(one, DONE, 0.1, b"1"))
            said = [one.msg.fields["request_id"] for one in caplog.records]
            assert said == [f"x{lines}"] * lines

    here(check)


def test_the_limits_of_what_passes_are_those_of_the_cluster_from_the_start(here):
    async def check(at):
        assert (at.shell.relays.stall_s, at.shell.relays.idle_s) == (7.0, 8.0)

    limits = {"passed_stall_ms": 7000.0, "passed_idle_ms": 8000.0}
    here(check, handler="proxy:http://127.0.0.1:9", **limits)


def test_what_is_read_and_written_takes_the_place_of_answers_that_are_kept(here):
    async def check(at):
        shell, held = at.shell, at.shell.machine.held
        shell.room.make()
        assert shell.names._limit_bytes == held.limit_bytes
        shell.moving.add(held.limit_bytes // 4)
        await until(lambda: held.moving_bytes)
        assert shell.names._limit_bytes == held.limit_bytes - held.limit_bytes // 4

    here(check)


def test_reports_that_say_the_same_are_said_a_few_times(here):
    """At the period of the topology they would be said again and again."""

    async def check(at):
        heard = at.listen("b")
        for _ in range(50):
            at.say(ev.Publish(REPORT))
        assert 1 <= len(heard) < 25

    here(check)


def test_commands_to_neighbors_that_have_left_harm_nobody(here):
    async def check(at):
        at.say(ev.Recall(1, 99))
        at.say(ev.AskCancel(1, 99))

    here(check)


def test_an_answer_is_given_after_what_its_delivery_takes(here):
    """Once, and counted then."""

    async def check(at):
        entry, told = at.take(), []
        at.shell.waiters.wait(entry.ref, told.append)
        answer = Answer(DONE, ("a",), b"1")
        at.say(ev.Reply(entry.ref, ev.HOME, answer, 0.02))
        assert (told, at.shell.metrics.ended("done")) == ([], 0)
        await until(lambda: told)
        assert (told, at.shell.metrics.ended("done")) == ([answer], 1)
        assert entry.answer is answer

    here(check)


def test_what_a_neighbors_request_came_to_is_counted_as_that_and_it_is_told(here):
    async def check(at):
        shell = at.shell
        ref, future = at.take_over()
        at.feed(ev.ServiceEnded(ref, Outcome.FAILED, 0.1, problem="why"))
        assert (await future).outcome is Outcome.FAILED
        refused, future = at.take_over("z")
        command = ev.Refuse(refused, at.handles["b"], Refusal.QUEUE_FULL, 1.0)
        at.say(command)
        assert await future is command
        received = shell.metrics._received
        assert (received["b", "failed"], received["b", "refused"]) == (1, 1)
        assert sum(received.values()) == 2
        assert shell.metrics.ended("failed", "refused") == 0

    here(check)


def test_lines_for_one_neighbor_are_heard_by_that_one_alone(here):
    async def check(at):
        b, c = at.listen("b"), at.listen("c")
        at.say(ev.AskForWork(at.handles["b"], LOAD, "g"))
        at.say(ev.NoWork(at.handles["c"], LOAD, "h"))
        assert [decode_line(line.strip()) for line in b] == [Question(LOAD, "g")]
        assert [decode_line(line.strip()) for line in c] == [NothingToDo(LOAD, "h")]
        at.say(ev.Heartbeat())
        assert (b[1:], c[1:]) == ([b"{}\n"], [b"{}\n"])
        at.say(ev.Publish(REPORT))
        assert decode_line(b[-1].strip()) == decode_line(c[-1].strip()) == REPORT

    here(check)


def test_neighbors_join_and_leave_all_parts_of_a_node(here):
    """By the link that the topology has with them."""

    async def check(at):
        shell = at.shell
        d = replace(shell.topology.clusters[0], id="d", url="http://127.0.0.1:4")
        shell.topology = replace(
            shell.topology,
            clusters=(*shell.topology.clusters, d),
            links=(*shell.topology.links, Link(between=("a", "d"), delay_ms=30.0)),
        )
        at.say(ev.Connect(7, "d"))
        assert shell.links.by_handle[7].url == d.url
        assert shell.link_faults(7).delay_s == 0.03
        assert shell.peers.agreements[7].caller.to == "d"
        assert shell.peers.agreements[7]._terms.delay_ms == 30.0
        assert set(shell.metrics.came_back("d").values()) == {0}
        stream = shell.streams.open(7, lambda _: None)
        at.say(ev.Disconnect(7))
        assert stream.ended
        for by_handle in (shell.links.by_handle, shell.links.emulated, shell.peers.agreements):
            assert 7 not in by_handle
        with pytest.raises(KeyError):
            shell.metrics.came_back("d")

    here(check)


def test_what_cannot_be_is_told_in_the_log(here, caplog, monkeypatch):
    monkeypatch.setattr(module._log, "filters", [])
    caplog.set_level(logging.INFO)

    async def check(at):
        at.say(ev.JoinRefused("d", "too many"))
        at.say(ev.SettingsRefused("no servers"))
        said = [(one.levelname, one.msg.words, one.msg.fields) for one in caplog.records]
        assert said == [
            ("WARNING", "no neighbor", {"cluster": "d", "reason": "too many"}),
            ("WARNING", "settings stay as they were", {"reason": "no servers"}),
        ]

    here(check)


def test_a_failure_ends_the_node_with_the_first_reason():
    async def main():
        at = Here()
        try:
            running = asyncio.ensure_future(at.shell.run())
            at.shell.fail(OSError("first"))
            at.shell.fail(OSError("second"))
            with pytest.raises(ExceptionGroup) as raised:
                await asyncio.wait_for(running, 10.0)
            assert [str(one) for one in raised.value.exceptions] == ["first"]
        finally:
            await at.shell.close()

    asyncio.run(main())


@pytest.mark.slow
def test_a_loop_that_is_held_up_tells_the_machine_for_how_long():
    """It must not take neighbors for silent that it has not heard for that reason."""

    async def main():
        heard = []
        topology = topology_of("b", "a", "c").with_urls(URLS)
        shell = NodeShell(topology, "a", journal=lambda event, _: heard.append(event))
        running = asyncio.ensure_future(shell.run())
        try:
            await until(lambda: sum(isinstance(one, ev.TimerFired) for one in heard) >= 2)
            held_up_s = 1.5 * LATE_S_MIN
            began_s = time.monotonic()
            while time.monotonic() < began_s + held_up_s:
                pass  # the loop is late
            late = await until(lambda: [one for one in heard if isinstance(one, ev.HeldUp)])
            assert max(one.late_s for one in late) >= LATE_S_MIN
        finally:
            running.cancel()
            await shell.close()

    asyncio.run(main())


def test_what_runs_requests_says_when_it_cannot(here):
    async def check(at):
        at.shell._health_changed(False)
        assert at.shell.machine.servers.down
        at.shell._health_changed(True)
        assert not at.shell.machine.servers.down

    here(check)


def test_who_holds_what_a_neighbor_handed_over_is_found_by_its_name(here):
    async def check(at):
        ref, _ = at.take_over()
        assert at.shell.visit_of("y") is at.shell.machine.register.visits[ref]
        assert at.shell.visit_of("x") is None
        at.take()
        assert at.shell.visit_of("x") is None, "it is a client's"
        assert [one["event"] for one in at.shell.story("y")] == ["decided"]
        assert at.shell.surely_never_ran(ref) is False

    here(check)


def test_choices_can_be_repeated_and_no_purpose_shifts_another():
    async def main():
        def drawn(seed, cluster="a"):
            topology = topology_of("b", "a", "c").with_urls(URLS)
            shell = NodeShell(topology, cluster, seed=seed)
            return shell, shell._link_random.random()

        shells = [drawn(1), drawn(1), drawn(2), drawn(1, "b"), drawn(None), drawn(None)]
        assert shells[0][1] == shells[1][1]
        assert len({number for _, number in shells}) == len(shells) - 1
        for shell, _ in shells:
            await shell.close()

    asyncio.run(main())


def test_a_neighbor_without_a_url_is_an_error_that_names_it():
    async def main():
        topology = topology_of("b", "a", "c").with_urls({"a": URLS["a"], "b": URLS["b"]})
        with pytest.raises(InputError) as raised:
            NodeShell(topology, "a", source="sites.yaml")
        assert str(raised.value) == "sites.yaml: clusters[2].url: expected a url"
        with pytest.raises(InputError, match=r"test: clusters\[2\]"):
            NodeShell(topology, "a")

    asyncio.run(main())
