"""What the log says of a node's condition: each change once, and that its books do not balance."""

import logging

import pytest

from spillover.live.overflow import condition_log as module
from spillover.live.overflow.condition_log import ConditionLog
from support.typed_sites import Site, linked, plain


@pytest.fixture
def machine():
    return Site(linked(plain("a"))).machine


@pytest.fixture
def said(caplog, monkeypatch):
    """What is said when one looks: level, words and fields of each line."""
    monkeypatch.setattr(module._log, "filters", [])
    caplog.set_level(logging.INFO, module.__name__)

    def look(log, now_s):
        caplog.clear()
        log.look(now_s)
        return [(one.levelname, one.msg.words, one.msg.fields) for one in caplog.records]

    return look


def work(machine, now_s, *, failed):
    """Work ends in this way until that has changed what the node is."""
    for _ in range(1000):
        if machine.health.ended(now_s, failed=failed, usual=0.0):
            return
    raise AssertionError(machine.health.state)


def test_each_change_is_told_once_and_trouble_louder(machine, said):
    log = ConditionLog(machine)
    assert said(log, 0.0) == []
    work(machine, 0.0, failed=True)
    share = machine.health.failed_share(1.0)
    told = {"health": "degraded", "before": "well", "failed_share": share}
    assert share > 0.0
    assert said(log, 1.0) == [("WARNING", "health has changed", told)]
    assert said(log, 2.0) == []
    work(machine, 3.0, failed=False)
    ((level, _, told),) = said(log, 3.0)
    assert (level, told["health"], told["before"]) == ("INFO", "recovering", "degraded")


def test_books_that_do_not_balance_are_an_error_as_long_as_they_do_not(machine, said):
    log = ConditionLog(machine)
    machine.ledger.home["accepted"] += 2
    for _ in range(2):
        ((level, words, told),) = said(log, 0.0)
        assert (level, words, told["imbalance"]) == ("ERROR", "the ledger is off", 2)
        assert told["ledger"] == machine.ledger.as_dict()
    machine.ledger.home["accepted"] -= 2
    assert said(log, 0.0) == []
