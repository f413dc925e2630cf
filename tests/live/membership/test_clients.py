"""Who has a session at a node, as its metrics are told."""

import asyncio
import math
import time

import pytest

from spillover.core.membership.letting_in import LettingIn
from spillover.core.membership.session_events import SessionServer
from spillover.live.engine.timers import Timers
from spillover.live.membership.clients import PARTING_S, Clients
from spillover.live.membership.session_wire import SIGN_OF_LIFE, decode_line

URL = "http://x:1"


class Bed:
    """A node's clients, and what each was told; nothing is due but by hand."""

    def __init__(self, most=10, **options):
        self.loop = asyncio.new_event_loop()
        self.timers = Timers(self.loop)
        letting_in = LettingIn(100.0, 100, most)
        self.clients = Clients("a", 7, letting_in, self.timers, **options)
        self.told, self.ended = {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.timers.close()
        self.loop.close()

    def announce(self, version, *names):
        self.clients.announce(version, "a", [SessionServer(name, URL) for name in names])

    def open(self, client, attempt=1):
        name = f"{client}{attempt}"
        lines = self.told[name] = []
        return self.clients.open(client, attempt, lines.append, lambda: self.ended.append(name))

    def last(self, name):
        return decode_line(self.told[name][-1].removesuffix(b"\n"))


def test_who_comes_is_told_where_it_is_and_is_the_last():
    with Bed() as bed:
        bed.announce(3, "a", "b")
        for rank, client in enumerate("cde"):
            bed.open(client)
            said = bed.last(f"{client}1")
            assert (said.cluster, said.version, said.clients, said.rank) == ("a", 3, rank + 1, rank)
            assert (said.surplus, [server.id for server in said.servers]) == (0.0, ["a", "b"])
        assert [len(lines) for lines in bed.told.values()] == [1, 1, 1]
        assert (len(bed.clients), "d" in bed.clients, "x" in bed.clients) == (3, True, False)


def test_the_first_who_comes_has_signs_of_life_begin():
    """Fifteen seconds from now on, though it is alone; those who come later have the same."""
    with Bed() as bed:
        bed.announce(1, "a")
        before_s = time.monotonic()
        bed.open("c")
        assert before_s + 15.0 <= bed.timers.next_s <= time.monotonic() + 15.0
        bed.timers.run_due(before_s + 16.0)
        assert bed.told["c1"].count(SIGN_OF_LIFE) == 1
        bed.open("d")
        assert len(bed.timers) == 1
        bed.timers.run_due(before_s + 31.0)
        assert [lines[-1] for lines in bed.told.values()] == [SIGN_OF_LIFE] * 2
        assert len(bed.timers) == 1
        bed.clients.close()
        bed.timers.run_due(math.inf)
        assert len(bed.timers) == 0
        assert bed.told["c1"].count(SIGN_OF_LIFE) == 2


def test_who_comes_anew_takes_its_own_place():
    counts = []
    with Bed(on_count=counts.append) as bed:
        bed.announce(1, "a")
        old = bed.open("c")
        bed.open("d")
        bed.open("c", 2)
        assert (bed.ended, bed.last("c2").rank, counts) == (["c1"], 1, [1, 2, 2])
        bed.clients.drop(old)
        assert not bed.clients.leave("c", 1, moved=True)
        assert not bed.clients.leave("x", None, moved=True)
        assert (counts, len(bed.clients), bed.clients.machine.moves) == ([1, 2, 2], 2, 0)
        assert bed.clients.leave("c", 2, moved=True)
        assert bed.clients.leave("d", None, moved=False)
        assert (bed.ended, counts[3:], bed.clients.machine.moves) == (["c1", "c2", "d1"], [1, 0], 1)
        ends = bed.open("e")
        for _ in range(2):  # its response ends, and nobody has said goodbye
            bed.clients.drop(ends)
        assert counts[5:] == [1, 0]


def test_without_a_place_one_is_put_off_until_others_may_have_gone():
    with Bed(most=1) as bed:
        bed.announce(1, "a")
        assert bed.clients.let_in("c") is None
        bed.open("c")
        assert (bed.clients.machine.is_full_for("c"), bed.clients.machine.is_full_for("d")) == (
            False,
            True,
        )
        assert bed.clients.let_in("c") is None
        assert bed.clients.let_in("d") == 15.0
        assert bed.clients.machine.refused == 1


@pytest.mark.parametrize("is_server", [True, False])
def test_a_node_that_takes_nothing_more_says_so_to_those_who_do_not_know(is_server):
    """The others know from the configuration when to go, and where to."""
    with Bed() as bed:
        bed.announce(1, *("a" if is_server else ""), "b")
        for client in "cd":
            bed.open(client)
        bed.clients.part()
        lines = [len(told) for told in bed.told.values()]
        assert lines == ([2, 2] if is_server else [1, 1])
        if is_server:
            assert [bed.last(f"{client}1") for client in "cd"] == [PARTING_S] * 2
        assert bed.ended == []


def test_a_node_of_several_that_takes_nothing_more_says_so():
    """Clients know each of them by its url alone."""
    with Bed(url=URL) as bed:
        bed.announce(1, "", "b")
        bed.open("c")
        bed.clients.part()
        assert bed.last("c1") == PARTING_S


def test_changes_that_overlap_are_told_once_more_and_not_by_a_node_that_has_ended():
    """Those who act on the first do not know of the second."""
    for ends in (False, True):
        with Bed(numbers=lambda: {"b": 0}) as bed:
            bed.announce(1, "a", "b")
            for number in range(40):
                bed.open(f"c{number}.")
            assert len(bed.timers) == 1, "signs of life alone"
            bed.announce(2, "a", "b")
            assert len(bed.timers) == 2
            said = bed.last("c39.1")
            assert (said.clients, said.rank, said.surplus) == (40, 39, 0.5)
            if ends:
                bed.clients.close()
            bed.timers.run_due(bed.clients.machine.repeat_s)
            told = [line for line in bed.told["c39.1"] if line != SIGN_OF_LIFE]
            assert len(told) == (2 if ends else 3)
