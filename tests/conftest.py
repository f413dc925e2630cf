"""What all tests share: how a missing tool is met, Hypothesis without surprises, and which tests
run side by side, which in pairs, which alone (tests/run.sh).

Fixtures of one ring live in that ring's own conftest.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest

# The same examples every run: a red build is red for everyone, and random search is for the desk.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

TESTS = Path(__file__).parent
ALONE = {"containers", "dashboards", "e2e", "soak"}
"""Directories whose tests want the machine for themselves, unless their file is named below."""
TOGETHER = {
    *("test_alerts.py", "test_bench_command.py", "test_boards.py", "test_malformed.py"),
    *("test_handlers.py", "test_lease_processes.py"),
    *(f"test_lease_redis_{story}.py" for story in ("losses", "refusals", "replicas", "starts")),
}
"""Files there, and others with real processes, that only take long: nothing in them is timed, or
with limits that grow with the machine's load. Those about leases wait most of their time."""
TESTBEDS = "testbeds"
IN_PAIRS = {
    **dict.fromkeys(
        ("test_cancellations.py", "test_console_page.py", "test_killed_node.py"), TESTBEDS
    ),
    **dict.fromkeys(("test_on_prometheus.py", "test_readme_tour.py", "test_up.py"), TESTBEDS),
    **{f"test_faults_{of}.py": "faults" for of in ("links", "processes", "surroundings")},
    **{f"test_lease_redis_{of}.py": f"redis {of}" for of in ("links", "pauses")},
    **{f"test_lease_{of}.py": f"lease {of}" for of in ("demo", "groups", "handlers")},
}
"""Files there, and of the marker `e2e`, that use half the machine and whose limits bear one more
test beside them, yet no crowd; and what is to stay one after the other. Two testbeds would: where
a node was killed, its port is the first free one for the next."""
KINDS = ("together", "in-pairs", "alone")
WORKERS_MAX = 8
"""More are of no use: the longest tests take as long as all others on so many cores."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only",
        choices=KINDS,
        help="the tests that do not mind others beside them, those that bear one, or those that "
        "want the machine for themselves (default: all)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for other passes."""
    only = config.getoption("only")
    if only is not None:
        config.hook.pytest_deselected(items=[item for item in items if _kind(item) != only])
        items[:] = [item for item in items if _kind(item) == only]


def _kind(item: pytest.Item) -> str:
    """Which of KINDS: the marker `alone` says it of a test, and else its place."""
    if item.get_closest_marker("alone"):
        return "alone"
    real = ALONE & set(item.path.relative_to(TESTS).parts) or item.get_closest_marker("e2e")
    if not real or item.path.name in TOGETHER:
        return "together"
    return "in-pairs" if item.path.name in IN_PAIRS else "alone"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`: one more than the cores that this process may use, since many tests wait."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        cores = os.cpu_count() or 1
    return min(cores + 1, WORKERS_MAX)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Pairs: what is to stay one after the other goes to the same worker."""
    if config.getoption("only") != "in-pairs":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Pairs(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return IN_PAIRS[Path(nodeid.partition("::")[0]).name]

    return Pairs(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[object]:
    """Workers send their reports as UTF-8; some logs have what is none."""
    return _as_utf8((yield))


def _as_utf8(data: object) -> object:
    match data:
        case str():
            return data.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {key: _as_utf8(value) for key, value in data.items()}
        case list() | tuple():
            return type(data)(map(_as_utf8, data))
    return data


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
def waves(require: Callable[[object, str], None]) -> ModuleType:
    """The module that sends waves of large answers through a node and looks at its memory."""
    module = _load("waves_of_tests", "waves.py")
    require(module.CAN_LOOK, "/proc of Linux")
    return module


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
