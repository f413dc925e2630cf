"""What all tests share: how a missing tool is met, and Hypothesis without surprises.

Fixtures of one ring live in that ring's own conftest.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest

# The same examples every run: a red build is red for everyone, and random search is for the desk.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def require() -> Callable[[object, str], None]:
    """`require(condition, reason)` skips for a user, fails with SPILLOVER_REQUIRE_ALL=1."""

    def check(condition: object, reason: str) -> None:
        if condition:
            return
        if os.environ.get("SPILLOVER_REQUIRE_ALL") == "1":
            pytest.fail(f"required here: {reason}")
        pytest.skip(reason)

    return check


@pytest.fixture(scope="session")
def nodes() -> ModuleType:
    """The module that starts whole nodes: `nodes.Federation(nodes.topology_of("a", "b"))`.

    Tests are no package, so it is loaded by path.
    """
    return _load("nodes_of_tests", "federation.py")


@pytest.fixture(scope="session")
def redis_servers(require: Callable[[object, str], None]) -> ModuleType:
    """The module that starts Redis: `with redis_servers.running(tmp_path) as server`."""
    module = _load("redis_servers_of_tests", "redis_server.py")
    require(module.is_installed(), "redis-server on the PATH, and the extra `leases`")
    return module


@pytest.fixture(scope="session")
def redis_server(
    redis_servers: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[object]:
    """One running server for all tests: take a group of your own, `redis_servers.new_name()`."""
    with redis_servers.running(tmp_path_factory.mktemp("redis")) as server:
        yield server


def _load(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module
