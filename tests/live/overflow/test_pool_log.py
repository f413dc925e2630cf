"""What the log says of the servers of a pool, and how often."""

from __future__ import annotations

import logging

import pytest

from spillover.core.overflow import events as ev
from spillover.core.tokens.answers import FAILED, NOT_RUN, RUN_LENGTH
from spillover.live.overflow.pool_log import RUN_S, SAID_AGAIN_S, PoolLog, pool_log
from support.typed_sites import Site, linked, plain, unlike

TYPES = {"llm": "big small", "text": "small big"}
TURNED = "a server has changed"
BIG, SMALL = LLM, TEXT = 0, 1
DOES_NONE = "a server does no job of a type that it is to serve"


class Told:
    """A machine, its log, and the lines that come of it."""

    def __init__(self, caplog):
        self.site = Site(linked(unlike("a", TYPES, tokens=100)))
        self.log = PoolLog(self.site.machine)
        self.caplog = caplog

    def lines(self, now_s):
        """What is said now: (words, fields) of each line."""
        self.caplog.clear()
        self.log.look(now_s)
        return [(one.msg.words, one.msg.fields) for one in self.caplog.records]

    def down(self, number, now_s):
        self.site.tell(ev.ServersDown(number), now_s)
        return self.lines(now_s)

    def up(self, number, now_s):
        self.site.tell(ev.ServersUp(number), now_s)
        return self.lines(now_s)

    def run(self, server, kind, how=NOT_RUN):
        """A server does none of some jobs of a type, by their numbers."""
        for _ in range(RUN_LENGTH):
            self.site.machine.servers.answers.not_done(server, kind, how, "503")

    def runs(self, now_s):
        """Of which runs there is a line now."""
        return [
            (fields["server"], fields["type"], fields["how"], fields["in_a_row"])
            for words, fields in self.lines(now_s)
            if words == DOES_NONE
        ]


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, logger="spillover.live.overflow.pool_log")
    return Told(caplog)


def test_a_turn_is_a_line_and_the_way_back_another(told):
    assert told.lines(0.0) == []
    ((words, fields),) = told.down(1, 1.0)
    assert words == TURNED
    assert (fields["cluster"], fields["server"]) == ("a", "small")
    assert (fields["before"], fields["state"]) == ("up", "down")
    assert told.caplog.records[0].levelname == "WARNING"
    ((_, fields),) = told.up(1, 3.0)
    assert (fields["before"], fields["state"], "turns" in fields) == ("down", "up", False)
    assert told.caplog.records[0].levelname == "INFO"


def test_what_turns_again_and_again_is_told_of_more_and_more_rarely(told):
    """No line is lost of what is: the next one says how often it turned meanwhile. The other server
    has lines of its own; after a long calm it begins anew."""
    lines = []
    for second in range(1200):
        turn = told.up if second % 2 else told.down
        lines += [(second, fields["turns"]) for _, fields in turn(1, second) if "turns" in fields]
    assert lines == [(3, 2), (7, 4), (15, 8), (31, 16), (63, 32), (127, 64), (255, 128),
                     (511, 256), (1023, 512)]  # fmt: skip
    ((_, fields),) = told.down(0, 1200.0)
    assert (fields["server"], fields["state"]) == ("big", "down")
    ((_, fields),) = told.lines(1623.0)
    assert (fields["state"], fields["turns"]) == ("up", 176)
    assert told.lines(9999.0) == []
    assert [len(told.down(1, 9999.0)), len(told.up(1, 10_000.0))] == [1, 1]


def test_a_run_is_said_once_and_another_one_of_the_same_after_a_while(told):
    answers = told.site.machine.servers.answers
    told.run(BIG, LLM)
    assert told.runs(0.0) == [("big", "llm", "not_run", RUN_LENGTH)]
    told.run(BIG, LLM)
    assert told.runs(SAID_AGAIN_S) == [], "it goes on"
    answers.done(BIG, LLM)
    told.run(BIG, LLM, FAILED)
    assert told.runs(SAID_AGAIN_S) == [("big", "llm", "failed", RUN_LENGTH)]
    answers.done(BIG, LLM)
    told.run(BIG, LLM)
    assert told.runs(2 * SAID_AGAIN_S - 0.1) == []
    assert told.runs(2 * SAID_AGAIN_S) == [("big", "llm", "not_run", RUN_LENGTH)]


def test_each_server_has_its_lines_one_type_after_the_other(told):
    for server, kind in ((BIG, LLM), (BIG, TEXT), (SMALL, TEXT)):
        told.run(server, kind)
    assert [len(told.runs(now_s)) for now_s in (0.0, 0.9, RUN_S, 9.0)] == [2, 0, 1, 0]


def test_servers_that_are_alike_have_none():
    assert pool_log(Site(linked(plain("a"))).machine) is None
