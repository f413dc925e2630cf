"""What tests of handlers share: a Dask cluster that says what it is told to."""

import importlib.util
import logging
import sys

import pytest

from spillover.live.handlers.dask import connection, pool, session
from support import HANDLERS
from support.scripted_dask import ScriptedDask


@pytest.fixture
def importable(monkeypatch):
    """Modules of handlers are in the working directory, as users' modules are."""
    monkeypatch.chdir(HANDLERS)
    monkeypatch.setattr(sys, "path", [str(HANDLERS), *sys.path])


@pytest.fixture
def play_dask(require, monkeypatch):
    """`play_dask(*workers)`: a cluster of these, which nobody looks at without a reason. They have
    the module of the tests' functions."""
    require(importlib.util.find_spec("cloudpickle"), "the extra `dask`")
    monkeypatch.syspath_prepend(HANDLERS)
    monkeypatch.setattr(connection, "LOOK_EVERY_S", 3600.0)
    monkeypatch.setattr(connection, "AGAIN_FIRST_S", 0.001)

    def play(*workers):
        dask = ScriptedDask(*workers)
        monkeypatch.setitem(sys.modules, "distributed", dask.module())
        return dask

    return play


@pytest.fixture
def dask_log(caplog, monkeypatch):
    """What the log has said: words and fields."""
    for module in (connection, pool, session):
        # The filter holds back what it has let through within a second, for another test as well.
        monkeypatch.setattr(module._log, "filters", [])
    caplog.set_level(logging.INFO)

    def lines():
        said = [one.msg for one in caplog.records if "handlers.dask" in one.name]
        return [(one.words, one.fields) for one in said]

    return lines
