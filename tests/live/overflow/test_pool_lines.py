"""What the lines on the servers of a pool hold, for whoever is to look at them."""

import logging

import pytest

from spillover.core.tokens.answers import FAILED, REJECTED, RUN_LENGTH
from spillover.live.overflow import pool_log as module
from support.typed_sites import Site, linked, unlike

BIG, SMALL = 0, 1
TYPES = {"llm": "big", "any": "big small"}


@pytest.fixture
def said(caplog, monkeypatch):
    """What was said since it was asked for last: level, words and fields."""
    monkeypatch.setattr(module._log, "filters", [])
    caplog.set_level(logging.INFO)

    def since():
        lines = [(one.levelname, one.msg.words, one.msg.fields) for one in caplog.records]
        caplog.clear()
        return lines

    return since


@pytest.fixture
def pool():
    return Site(linked(unlike("a", TYPES))).machine


def test_a_server_that_is_in_trouble_is_told_with_what_it_did(pool, said):
    """How much of its work fails, of which types it did how many not, and what it said last; in
    order it is no more than a word."""
    log, server = module.pool_log(pool), pool.servers.servers[BIG]
    for kind, problem in (("llm", "503"), ("any", "a reset")):
        number = pool.servers.kinds[kind].number
        pool.servers.answers.not_done(BIG, number, FAILED, problem)
    for _ in range(2):
        server.health.ended(0.0, True, 0.0)
    server.health.degrade(0.0)
    for _ in range(2):
        log.look(0.0)
    ((level, words, told),) = said()
    assert (level, words) == ("WARNING", "a server has changed")
    change = {"cluster": "a", "server": "big", "state": "degraded", "before": "up"}
    assert told == change | {
        "failed_share": 0.23,
        "not_done": {"llm": 1, "any": 1},
        "answered": "a reset",
    }
    server.health.retry()
    log.look(1.0)
    ((level, _, told),) = said()
    assert level == "INFO"
    assert told == {"cluster": "a", "server": "big", "state": "up", "before": "degraded"}


def test_a_server_that_rests_is_in_trouble_and_one_that_is_out_is_not(pool, said):
    log, servers = module.pool_log(pool), pool.servers.servers
    servers[BIG].rest_until_s, servers[SMALL].is_out = 5.0, True
    log.look(0.0)
    assert [(level, told["server"], told["state"]) for level, _, told in said()] == [
        ("WARNING", "big", "resting"), ("INFO", "small", "out"),
    ]  # fmt: skip


@pytest.mark.parametrize("how", [REJECTED, FAILED])
def test_a_server_that_does_none_of_a_type_is_told_once_in_a_while(pool, said, how):
    """Once while it goes on, and at most once in ten minutes if it stops and begins again."""
    log, answers = module.pool_log(pool), pool.servers.answers
    kind = pool.servers.kinds["any"].number

    def goes_on(count=9):
        for _ in range(count):
            answers.not_done(SMALL, kind, how, "404")

    goes_on(RUN_LENGTH - 1)
    log.look(0.0)
    assert not said()
    goes_on()
    answers.not_done(BIG, kind, FAILED, "else nothing is kept")
    for _ in range(12):
        answers.done(BIG, kind)
    for now_s in (1.0, 700.0):
        log.look(now_s)
    ((level, words, told),) = said()
    assert (level, words) == ("WARNING", "a server does no job of a type that it is to serve")
    look_at = told.pop("look_at")
    assert look_at.startswith("the topology says that it serves any: classes small")
    assert look_at.endswith(module.AT_FAULT) is (how == REJECTED)
    whose = {"cluster": "a", "server": "small", "type": "any", "how": how}
    assert told == whose | {"in_a_row": RUN_LENGTH + 8, "done_elsewhere": 12, "answered": "404"}
    answers.done(SMALL, kind)
    goes_on()
    answers.not_done(BIG, kind, FAILED, "")
    for _ in range(12):
        answers.done(BIG, kind)
    log.look(600.0)
    assert not said()
    log.look(601.0)
    assert len(said()) == 1
