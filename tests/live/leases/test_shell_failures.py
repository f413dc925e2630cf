"""Members with whom something goes wrong on their own side, on a real Redis: no room for threads,
callbacks that raise, errors of ours, and being told of the end."""

import asyncio
import threading
from functools import partial
from pathlib import Path

import pytest

from spillover.live.leases.completion import MemberFailed
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.thread import LeaseGroupThread
from spillover.model.errors import RunError
from support import waiting
from support.loop import until

PARTITIONS = 6
LIMIT_S = 30.0
NO_ROOM_BYTES = 1 << 62
"""No thread can be started with a stack of that."""


@pytest.fixture
def no_room_for_threads():
    """Call it with whether there is none from now on."""
    yield lambda is_so: threading.stack_size(NO_ROOM_BYTES if is_so else 0)
    threading.stack_size(0)


def runs(main):
    async def limited():
        async with asyncio.timeout(LIMIT_S):
            await main()

    asyncio.run(limited())


class Running:
    """Which partitions run where, by what their handlers say."""

    def __init__(self):
        self.now = set()

    def on_thread(self, node):
        def handle(partition, epoch, stop_event):
            self.now.add((node, partition))
            stop_event.wait()
            self.now.discard((node, partition))

        return handle

    def on_loop(self, node):
        async def handle(partition, epoch, stop_event):
            self.now.add((node, partition))
            try:
                await stop_event.wait_async()
            finally:
                self.now.discard((node, partition))

        return handle

    def count(self, node):
        return sum(one == node for one, _ in list(self.now))


async def works(partition, epoch, stop_event):
    await stop_event.wait_async()


class Onlooker:
    """Counts, as `metrics` does, and breaks at one event."""

    def __init__(self, breaks_at):
        self.breaks_at = breaks_at

    def told(self, event):
        if event == self.breaks_at:
            raise KeyError("no such counter")

    def handler_failed(self):
        return

    def renewed(self, _):
        return


# --- handlers that cannot be started --------------------------------------------------------------


@pytest.mark.parametrize("renewer", ["process", "thread"])
@pytest.mark.parametrize("kind", [LeaseGroup, LeaseGroupThread])
def test_no_room_for_a_members_own_threads(group, no_room_for_threads, kind, renewer):
    """It does not begin, says so in one line, and leaves no process and no thread behind."""
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = (set(threading.enumerate()), children.read_text())

    async def main():
        async with group("a", works, renewer=renewer):
            pytest.fail("it has begun")

    member = group("a", works, renewer=renewer, kind=kind)
    begin = partial(runs, main) if kind is LeaseGroup else member.__enter__
    no_room_for_threads(True)
    with pytest.raises(RunError, match=r"^the thread '[a-z-]+' cannot be started: expected room"):
        begin()
    no_room_for_threads(False)
    assert (set(threading.enumerate()), children.read_text()) == before


# --- what raises ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["on_thread", "on_loop"])
async def test_an_error_of_ours_ends_the_whole_member(group, caplog, kind):
    """In the middle of a hand-over: it acts no more, says so, and the others take all of it."""
    running = Running()
    async with group("a", getattr(running, kind)("a")) as broken:
        broken.events.observer = Onlooker("releasing")
        await until(lambda: running.count("a") == PARTITIONS)
        async with group("b", running.on_loop("b")) as other:
            with pytest.raises(MemberFailed, match=r"a: it has failed .*KeyError: 'no such"):
                await broken.wait()
            assert (broken.state, broken.held, broken.draining) == ("finished", {}, True)
            assert not broken._shell.leases._supervisor._begun, "it gives no sign of life"
            await until(lambda: running.count("a") == 0)
            await until(lambda: running.count("b") == PARTITIONS)
            assert len(other.held) == PARTITIONS
    errors = [one for one in caplog.records if one.exc_info]
    assert [one.message for one in errors] == ["member has failed, and serves nothing member=a"]
    assert "told" in caplog.text  # where it was
    assert "cancelled itself" not in caplog.text


async def test_an_error_of_ours_at_entry(group, redis_servers):
    """Raised there: while Redis is away, nobody would ever come out."""
    url = f"redis://127.0.0.1:{redis_servers.free_port()}/0"

    member = group("a", works, url=url)
    member.events.observer = Onlooker("redis_down")
    with pytest.raises(MemberFailed, match="a: it has failed"):
        await member.__aenter__()


# --- who is told of the end -----------------------------------------------------------------------


def given_up(caplog):
    return [one.message for one in caplog.records if "another member with the id" in one.message]


async def test_giving_up_is_logged_and_raised_at_the_end(group, caplog):
    async def give_up():
        async with group("a", works) as again:
            await until(lambda: again.state == "finished")
            assert len(given_up(caplog)) == 1

    async with group("a", works):
        with pytest.raises(RunError, match="a: another member with the id a is alive"):
            await give_up()
    assert given_up(caplog)[0].startswith("member has given up member=a reason=")


def test_a_member_without_await_that_is_left_before_its_loop_runs_leaves_as_soon_as_it_does(group):
    """By a Ctrl-C in between."""
    member = group("a", lambda *_: None, kind=LeaseGroupThread)
    member._abandon()
    with member:
        assert member.wait(LIMIT_S)


def test_whoever_is_interrupted_while_it_enters_in_vain_leaves(group, redis_servers, monkeypatch):
    """By a Ctrl-C while there is no Redis: nothing of it goes on behind its back."""
    url = f"redis://127.0.0.1:{redis_servers.free_port()}/0"
    member = group("a", works, kind=LeaseGroupThread, url=url)

    def interrupted():
        waiting.until(lambda: member._member.machine.is_down)
        raise KeyboardInterrupt

    monkeypatch.setattr(member._entered, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        member.__enter__()
    member._thread.join(LIMIT_S)
    assert not member._thread.is_alive()


class Interrupted(threading.Event):
    """Whoever waits for it is interrupted by a Ctrl-C, once."""

    is_pressed = False

    def wait(self, timeout=None):
        if not self.is_pressed:
            self.is_pressed = True
            raise KeyboardInterrupt
        return super().wait(timeout)


def test_whoever_is_interrupted_while_it_hands_over_leaves_at_once(group):
    """Handlers are not waited for; what comes of it later is nothing."""
    held, free = threading.Event(), threading.Event()

    def handle(partition, epoch, stop_event):
        held.set()
        free.wait(LIMIT_S)

    member = group("a", handle, kind=LeaseGroupThread)
    member._ended = Interrupted()

    def leave():
        with member:
            assert held.wait(LIMIT_S)

    try:
        with pytest.raises(KeyboardInterrupt):
            leave()
        with pytest.raises(RunError, match="a: it was left at once"):
            member.wait(LIMIT_S)
        member._abandon()
    finally:
        free.set()
    member._thread.join(LIMIT_S)
    assert not member._thread.is_alive()
