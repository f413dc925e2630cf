"""Tests of apps may be coroutine functions: each runs in the loop that nodes use."""

import inspect
from functools import partial

import pytest

from support import federation


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run it under the time limit of `federation.run`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {
        name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
    }
    federation.run(partial(pyfuncitem.obj, **given))
    return True
