"""What all tests share: how a missing tool is met, Hypothesis without surprises, and which tests
run side by side, which in pairs, which alone, and which of them once more (tests/run.sh).

Fixtures of one ring live in that ring's own conftest, what tests import in tests/support.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest

from support import federation
from support import redis_server as servers
from support import waves as large_answers

# The same examples every run: a red build is red for everyone, and random search is for the desk.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("quick", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)

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
    "test_mixed_versions.py": TESTBEDS,
    **dict.fromkeys(("test_on_prometheus.py", "test_up.py"), TESTBEDS),
    **{f"test_faults_{of}.py": "faults" for of in ("links", "processes", "surroundings")},
    **{f"test_lease_redis_{of}.py": f"redis {of}" for of in ("links", "pauses")},
    **{f"test_lease_{of}.py": f"lease {of}" for of in ("demo", "groups", "handlers")},
    "test_leases_bench.py": "lease bench",
    "test_readme_tour.py": "tour",
}
"""Files there, and of the marker `e2e`, that use half the machine and whose limits bear one more
test beside them, yet no crowd; and what is to stay one after the other. Two testbeds would: where
a node was killed, its port is the first free one for the next."""
KINDS = ("together", "in-pairs", "alone")
FAIL_AT_ONCE = {"contract", "core", "parity", "policy", "sim"}
"""Directories of rules: nothing there is bound to real time."""
REAL_SERVERS = {"redis_server", "redis_servers"}
"""Fixtures that start processes, as the tests do that ask for them."""
ALL_SLOW = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)
"""In a file of which `make check` reads no more."""
WORKERS_MAX = 8
"""More are of no use: the longest tests take as long as all others on so many cores."""


RUNS_A_TEST = threading.Event()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only",
        choices=(*KINDS, "quick"),
        help="the tests that do not mind others beside them, those that bear one, those that want "
        "the machine for themselves, or of the first those that start no process and are not slow "
        "(default: all)",
    )
    parser.addoption(
        "--first-failures",
        type=Path,
        metavar="FILE",
        help="append to this file which tests bound to real time fail, and do not count them",
    )
    parser.addoption("--again", type=Path, metavar="FILE", help="the tests that this file names")


def pytest_configure(config: pytest.Config) -> None:
    is_quick = config.getoption("only") == "quick"
    profile = os.environ.get("HYPOTHESIS_PROFILE", "quick" if is_quick else "repeatable")
    hypothesis.settings.load_profile(profile)
    if is_quick:
        sys.addaudithook(_refuse_processes)


def _refuse_processes(event: str, _: object) -> None:
    """Hold tests to what they say of themselves."""
    if event in {"subprocess.Popen", "os.fork", "os.posix_spawn"} and RUNS_A_TEST.is_set():
        raise AssertionError("it starts a process: mark it `processes`")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[object]:
    RUNS_A_TEST.set()
    try:
        return (yield)
    finally:
        RUNS_A_TEST.clear()


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
    """Leave unread what its place or its markers tell to be for other passes: to read all
    tests takes a worker as long as to run a thousand. None: that is not known before."""
    only, name = config.getoption("only"), collection_path.name
    if only in {None, "together"} or not name.startswith("test_"):
        return None
    if only == "in-pairs":
        return name not in IN_PAIRS or None
    is_real = bool(ALONE & set(collection_path.parts))
    text = collection_path.read_text("utf-8")
    if only == "quick":
        return is_real or ALL_SLOW.search(text) is not None or None
    is_alone = is_real and name not in {*TOGETHER, *IN_PAIRS}
    return not (is_alone or re.search(r"\bmark\.(alone|e2e)\b", text)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what follows from a test's place, and leave out what is for other passes."""
    for item in items:
        if _kind(item) != "together":
            item.add_marker(pytest.mark.realtime)
        if _is_real(item) or REAL_SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.processes)
        if item.get_closest_marker("realtime") and FAIL_AT_ONCE & set(_parts(item)):
            raise pytest.UsageError(f"{item.nodeid}: rules are not bound to real time")
    kept = [item for item in items if _is_asked_for(config, item)]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


def _is_asked_for(config: pytest.Config, item: pytest.Item) -> bool:
    only, again = config.getoption("only"), config.getoption("again")
    if again is not None and item.nodeid not in again.read_text("utf-8").splitlines():
        return False
    if only == "quick":
        left_out = item.get_closest_marker("processes") or item.get_closest_marker("slow")
        return _kind(item) == "together" and left_out is None
    return only is None or _kind(item) == only


def _parts(item: pytest.Item) -> tuple[str, ...]:
    return item.path.relative_to(TESTS).parts


def _is_real(item: pytest.Item) -> bool:
    return bool(ALONE & set(_parts(item)) or item.get_closest_marker("e2e"))


def _kind(item: pytest.Item) -> str:
    """Which of KINDS: the marker `alone` says it of a test, and else its place."""
    if item.get_closest_marker("alone"):
        return "alone"
    if not _is_real(item) or item.path.name in TOGETHER:
        return "together"
    return "in-pairs" if item.path.name in IN_PAIRS else "alone"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The exit status that tests/run.sh goes by: 1 where tests failed that are not run again, and
    as after Ctrl-C where -x ended the run."""
    config = session.config
    is_part = config.getoption("only") or config.getoption("again")
    if hasattr(config, "workerinput") or not is_part:
        return
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and session.shouldfail:
        session.exitstatus = pytest.ExitCode.INTERRUPTED
    stats = config.pluginmanager.get_plugin("terminalreporter").stats
    failures = [*stats.get("failed", ()), *stats.get("error", ())]
    realtime = [one for one in failures if "realtime" in getattr(one, "keywords", ())]
    file = config.getoption("first_failures")
    if file is None or not realtime:
        return
    with file.open("a", encoding="utf-8") as listed:
        listed.writelines(f"{name}\n" for name in dict.fromkeys(one.nodeid for one in realtime))
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and len(realtime) == len(failures):
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`: one more than the cores that this process may use, since many tests wait.
    Twice as many are no faster, and make limits tight."""
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
    require(servers.is_installed(), "redis-server on the PATH, and the extra `leases`")
    return servers


@pytest.fixture(scope="session")
def redis_server(
    redis_servers: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[object]:
    """One running server for all tests: take a group of your own, `redis_servers.new_name()`."""
    with redis_servers.running(tmp_path_factory.mktemp("redis")) as server:
        yield server
