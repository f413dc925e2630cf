"""A process that can open no more files says so, for as long as it lasts."""

import logging
import resource

import pytest

from spillover.live.process import logs
from spillover.live.process.open_files import tell_if_used_up


@pytest.fixture
def none_left():
    """No file can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_that_are_used_up_are_told_once_a_period(none_left, caplog, monkeypatch):
    now_s = 1000.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now_s)
    told = []
    for now_s in (1000.0, 1000.5, 1001.0, 1002.0):  # noqa: B007 - what the clock says
        assert tell_if_used_up(were_used_up=True)
        told.append(len(caplog.records))
    assert told == [1, 1, 2, 3]
    assert "no more files may be open (ulimit -n) reason=" in caplog.text


def test_that_files_can_be_opened_again_is_told_once(caplog):
    caplog.set_level(logging.INFO)
    assert not tell_if_used_up(were_used_up=True)
    assert not tell_if_used_up(were_used_up=False)
    assert caplog.messages == ["files can be opened again"]
