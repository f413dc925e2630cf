"""What all tests share: how a missing tool is met, Hypothesis without surprises, how many tests run
side by side, and the lists that tests/run.sh wants.

Fixtures of one ring live in that ring's own conftest, what tests import in tests/support.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import inspect
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import cast

import hypothesis
import pytest
import uvloop

from support import federation
from support import redis_server as servers
from support import waves as large_answers

# Commands as users start them, pages in a browser, and federations that are broken.
pytest_plugins = ["support.commands", "support.console_page", "support.faults.rings"]

# The same examples every run: a red build is red for everyone, and random search is for the desk.
# All of them in `make soak`, a third in `make test`, a sixth in `make check`.
hypothesis.settings.register_profile("whole", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.register_profile("quick", derandomize=True, deadline=None, max_examples=10)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)

TESTS = Path(__file__).parent
WHOLE_PROCESSES = {TESTS / name for name in ("containers", "dashboards", "e2e", "realtime", "soak")}
"""Directories whose tests start whole processes."""
UNREAD = {*WHOLE_PROCESSES, TESTS / "apps" / "test_schemathesis.py"}
"""What `make check` does not even read: nothing of it would run, and to read it takes long."""
FIRST = ("e2e", "dashboards")
"""The places whose tests begin first, in order: each of them takes long, and all others fill the
gaps at the end."""
REAL_SERVERS = {"redis_server", "redis_servers"}
"""Fixtures that start processes, so that tests that ask for them are marked `processes`."""
MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a directory there that is the user's alone
MEMORY_BYTES = 2**30
WORKERS_MAX = 8
"""More are of no use: the longest tests take as long as all others on so many cores."""


OWN_THREADS = {"spillover-client", "queue-consumer", "queue-producer"}
"""Threads of clients for code that never awaits."""

RUNS_A_TEST = threading.Event()

LOOKED_THROUGH = threading.Event()
"""The collector has looked at all objects since they were last set aside."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="the tests of `make check`: they start no process and are not slow",
    )
    parser.addoption(
        "--failures", type=Path, metavar="FILE", help="append to this file which tests fail"
    )
    parser.addoption(
        "--skips",
        type=Path,
        metavar="FILE",
        help="append to this file why tests are skipped, and behind a tab which",
    )


def pytest_configure(config: pytest.Config) -> None:
    is_quick = config.getoption("quick")
    usual = "whole" if "SPILLOVER_SOAK_S" in os.environ else "repeatable"
    profile = os.environ.get("HYPOTHESIS_PROFILE", "quick" if is_quick else usual)
    hypothesis.settings.load_profile(profile)
    if is_quick:
        asked = f"({config.option.markexpr}) and " if config.option.markexpr else ""
        config.option.markexpr = f"{asked}not processes and not slow"
        sys.addaudithook(_refuse_processes)
        _keep_files_in_memory()
    gc.callbacks.append(_note_collection)


def _keep_files_in_memory() -> None:
    """Keep those of `tmp_path` there, if there is room: stores wait for what they write to be on a
    disk for good, some milliseconds each time. In `make test` it is on one."""
    with suppress(OSError):  # macOS has no such place
        if shutil.disk_usage(MEMORY).free > MEMORY_BYTES and os.access(MEMORY, os.W_OK):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def _refuse_processes(event: str, told: tuple[object, ...]) -> None:
    """Hold tests to their markers. Matplotlib lists the fonts of a machine where it is used for the
    first time."""
    starts = event in {"subprocess.Popen", "os.fork", "os.posix_spawn"} and told[:1] != ("fc-list",)
    if starts and RUNS_A_TEST.is_set():
        raise AssertionError("it starts a process: mark it `processes`")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[object]:
    RUNS_A_TEST.set()
    try:
        return (yield)
    finally:
        RUNS_A_TEST.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[object]:
    """A client that a test leaves open is told of here: others find its thread much later."""
    try:
        return (yield)
    finally:
        left = OWN_THREADS & {thread.name for thread in threading.enumerate()}
        assert not left, f"{item.nodeid}: it leaves a client open, whose thread lives: {left}"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function under a time limit, on the loop that its parameter
    `loop` makes; else on uvloop where it has nodes."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    has_nodes = "nodes" in given or pyfuncitem.path.is_relative_to(TESTS / "apps")
    factory = uvloop.new_event_loop if has_nodes else asyncio.new_event_loop
    federation.run(partial(pyfuncitem.obj, **given), given.get("loop", factory))
    return True


def pytest_runtest_logfinish() -> None:
    """What tests have kept for others, such as simulations that many of them look at, need not be
    looked through again: it would take a fifth of all their time. Cycles are let go of first."""
    if LOOKED_THROUGH.is_set():
        gc.collect()
        gc.freeze()
        LOOKED_THROUGH.clear()


def _note_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        LOOKED_THROUGH.set()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """All that is read stays until the end: to look for garbage among it costs a test that makes
    many objects a quarter of its time, and the reading a third."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make check` leaves unread what it would not run. None: other hooks decide."""
    return (config.getoption("quick") and collection_path in UNREAD) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what follows from fixtures, and begin with what takes long."""
    is_soak = "SPILLOVER_SOAK_S" in os.environ
    for item in items:
        if is_soak and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(0))  # it has its own limit
        if REAL_SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.processes)
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    place = item.path.relative_to(TESTS).parts[0]
    return FIRST.index(place) if place in FIRST else len(FIRST)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the lists of what failed and of what was skipped."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    stats = config.pluginmanager.get_plugin("terminalreporter").stats
    failed = map(_listed, (*stats.get("failed", ()), *stats.get("error", ())))
    _append(config.getoption("failures"), dict.fromkeys(failed))
    _append(config.getoption("skips"), map(_why_and_which, stats.get("skipped", ())))


def _listed(report: pytest.TestReport) -> str:
    """What goes wrong at the end of a fixture may be the work of other tests that shared it: to run
    this one again would not show it, and it is listed as none that could be."""
    return report.nodeid if report.when != "teardown" else f"at the end of {report.nodeid}"


def _append(file: Path | None, lines: Iterable[str]) -> None:
    if file is not None:
        with file.open("a", encoding="utf-8") as listed:
            listed.writelines(f"{line}\n" for line in lines)


def _why_and_which(report: pytest.TestReport) -> str:
    _, _, reason = cast("tuple[str, int, str]", report.longrepr)
    return f"{reason.removeprefix('Skipped: ').splitlines()[0]}\t{report.nodeid}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For `-n auto`, by the cores that this process may use. Tests of `make check` wait for a third
    of their time, in which others compute; of those that start whole nodes two cores bear no more
    than three."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        cores = os.cpu_count() or 1
    return min(cores + (2 if config.getoption("quick") else 1), WORKERS_MAX)


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
def numba(require: Callable[[object, str], None]) -> None:
    """The fast engines can be compiled."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")


@pytest.fixture(scope="session")
def nodes() -> ModuleType:
    """The module that starts whole nodes: `nodes.Federation(nodes.topology_of("a", "b"))`."""
    return federation


@pytest.fixture(scope="session")
def waves(require: Callable[[object, str], None]) -> ModuleType:
    """The module that sends waves of large answers through a node and looks at its memory."""
    require(large_answers.CAN_LOOK, "/proc of Linux")
    return large_answers


@pytest.fixture(scope="session")
def redis_servers(require: Callable[[object, str], None]) -> ModuleType:
    """The module that starts Redis: `with redis_servers.running(tmp_path) as server`."""
    require(
        servers.is_installed(),
        "redis-server on the PATH (Debian: apt install redis-server), and the extra `leases`",
    )
    return servers


@pytest.fixture(scope="session")
def redis_7(redis_servers: ModuleType, require: Callable[[object, str], None]) -> None:
    """Redis counts the entries of a stream, so that what was trimmed before it was read is noticed;
    it knows rules for reading alone, and answers all the while that it loads."""
    require(servers.major_version() >= 7, "Redis 7 or later (Debian 12: apt install redis-server)")


@pytest.fixture(scope="session")
def redis_with_tls(redis_servers: ModuleType, require: Callable[[object, str], None]) -> None:
    """Redis was built with TLS."""
    require(servers.offers_tls(), "Redis with TLS (Debian: apt install redis-server)")


@pytest.fixture(scope="session")
def redis_server(
    redis_servers: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[object]:
    """One running server for all tests: take a group of your own, `redis_servers.new_name()`."""
    with redis_servers.running(tmp_path_factory.mktemp("redis")) as server:
        yield server
