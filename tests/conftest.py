"""What all tests share: how a missing tool is met, Hypothesis without surprises, and how many
tests run side by side, and which of them once more (tests/run.sh).

Fixtures of one ring live in that ring's own conftest, what tests import in tests/support.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import hypothesis
import pytest

from support import federation
from support import redis_server as servers
from support import waves as large_answers

# The same examples every run: a red build is red for everyone, and random search is for the desk.
# All of them in `make soak`, a third in `make test`, a sixth in `make check`.
hypothesis.settings.register_profile("whole", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.register_profile("quick", derandomize=True, deadline=None, max_examples=10)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)

TESTS = Path(__file__).parent
REAL = {"containers", "dashboards", "e2e", "soak"}
"""Directories whose tests start whole processes, as those do elsewhere that are marked `e2e`. Those
that are not marked as another kind are threes."""
KINDS = ("together", "meanwhile", "threes", "quiet", "alone")
"""The first three wait on conditions, and are `make test`: `together` runs on as many workers as
there are cores and two more, `meanwhile` computes at the lowest priority beside them, and `threes`
start processes, three tests at a time. The last two are bound to real time, and are `make
realtime`: of `quiet` three run at a time, and `alone` wants the machine for itself."""
REALTIME = {"quiet", "alone"}
"""Limits of these tests are times, or they compare a live run with the simulator. A test that is
marked `realtime` is quiet, whatever its file is."""
KIND_OF_FILE = re.compile(
    r"^pytestmark = .*\bmark\.(together|meanwhile|threes|quiet)\b", re.MULTILINE
)
LONGEST = (
    *("faults_links", "faults_processes", "faults_surroundings", "console_page", "up"),
    *("quick_runs", "configuration", "mixed_versions", "queue_clients", "readme_tour"),
    *("queue_virtual_time", "killed_node", "queue_processes", "lease_groups", "lease_demo"),
    *("cancellations", "on_prometheus", "overload", "failing_site", "real_services"),
)
"""Files of those that begin first, in order, so that no worker is left alone with one in the end:
by how long they take."""
FAIL_AT_ONCE = {"contract", "core", "parity", "policy", "sim"}
"""Directories of rules: nothing there is bound to real time."""
COMPUTE = FAIL_AT_ONCE | {"inputs", "model", "reproduce"}
"""Directories whose tests wait for nothing."""
MEANWHILE = {"core", "inputs", "model", "policy", "reproduce", "sim"}
"""Those of them that take most of the time, and of whose tests most bear to stand still: whoever
does not says `together`, or that it starts processes. Elsewhere whoever does says `meanwhile`."""
NOT_MEANWHILE = re.compile(r"\bmark\.(processes|together)\b")
REAL_SERVERS = {"redis_server", "redis_servers"}
"""Fixtures that start processes, as the tests do that ask for them."""
ALL_SLOW = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)
"""In a file of which `make check` reads no more."""
MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a directory there that is the user's alone
MEMORY_BYTES = 2**30
PRIORITY_LOWEST = 19
WORKERS_MAX = 8
"""More are of no use: the longest tests take as long as all others on so many cores."""


OWN_THREADS = {"spillover-client", "queue-consumer", "queue-producer"}
"""Of clients for code that never awaits."""

RUNS_A_TEST = threading.Event()

LOOKED_THROUGH = threading.Event()
"""All objects, by the collector, since they were last set aside."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only",
        choices=(*KINDS, "quick"),
        help="the tests of one kind (tests/conftest.py), or of those that run together or "
        "meanwhile the ones that start no process, have no limits of real time and are not slow "
        "(default: all)",
    )
    parser.addoption(
        "--first-failures",
        type=Path,
        metavar="FILE",
        help="append to this file which threes and tests bound to real time fail, uncounted",
    )
    parser.addoption(
        "--skips",
        type=Path,
        metavar="FILE",
        help="append to this file why tests are skipped, and behind a tab which",
    )
    parser.addoption(
        "--again", type=Path, metavar="FILE", help="the tests and files that this file names"
    )


def pytest_configure(config: pytest.Config) -> None:
    is_quick = config.getoption("only") == "quick"
    usual = "whole" if "SPILLOVER_SOAK_S" in os.environ else "repeatable"
    profile = os.environ.get("HYPOTHESIS_PROFILE", "quick" if is_quick else usual)
    hypothesis.settings.load_profile(profile)
    if is_quick:
        sys.addaudithook(_refuse_processes)
        _keep_files_in_memory()
    if config.getoption("only") == "meanwhile" and not hasattr(config, "workerinput"):
        _take_what_is_left()
    gc.callbacks.append(_note_collection)


def _keep_files_in_memory() -> None:
    """Those of `tmp_path`, if there is room: stores wait for what they write to be on the disk for
    good, some milliseconds each time. In `make test` it is on one."""
    with suppress(OSError):  # macOS has no such place
        if shutil.disk_usage(MEMORY).free > MEMORY_BYTES and os.access(MEMORY, os.W_OK):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def _take_what_is_left() -> None:
    """Of the cores. Linux shares them out between sessions first (sched(7), "The autogroup
    feature"), and each node has one of its own: whatever priority this process had in that of
    the tests that wait for nodes, it would take as much as a node does. Its workers are of the same
    session, so that they are stopped and ended with it (tests/run.sh)."""
    os.nice(PRIORITY_LOWEST)
    with suppress(OSError):  # begun by hand: its session is the terminal's
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(PRIORITY_LOWEST), "ascii")


def _refuse_processes(event: str, told: tuple[object, ...]) -> None:
    """Hold tests to what they say of themselves. Matplotlib lists the fonts of a machine where
    it is used for the first time."""
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
    """Leave unread what its name, its place or its markers tell to be for other passes: to read all
    tests takes a worker as long as to run a thousand. None: that is not known before."""
    only, again = config.getoption("only"), config.getoption("again")
    if only is None or not collection_path.name.startswith("test_"):
        return None
    if again is not None and collection_path.name not in again.read_text("utf-8"):
        return True
    return _is_left_to_others(only, collection_path) or None


def _is_left_to_others(only: str, path: Path) -> bool:
    parts = set(path.relative_to(TESTS).parts)
    is_real, is_meanwhile = bool(REAL & parts), bool(MEANWHILE & parts)
    text = path.read_text("utf-8")
    says_a_kind = KIND_OF_FILE.search(text) is not None
    says = f"mark.{only}" in text
    match only:
        case "together":
            computes = is_meanwhile and not NOT_MEANWHILE.search(text)
            return computes or ((is_real or says_a_kind) and not says)
        case "meanwhile":
            return not (is_meanwhile or says)
        case "quick":
            return is_real or ALL_SLOW.search(text) is not None
        case "threes":
            says = says or ((is_real or "mark.e2e" in text) and not says_a_kind)
        case "quiet":
            says = says or "mark.realtime" in text
        case "alone":
            says = says or "containers" in parts
    return not says


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what follows from a test's place, and leave out what is for other passes."""
    match config.getoption("only"):
        case "threes" | "quiet":
            items.sort(key=_place)
        case "together" | "meanwhile" | "quick":
            items[:] = _in_turns(items)
    is_soak = "SPILLOVER_SOAK_S" in os.environ
    for item in items:
        if is_soak and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(0))  # it has its own limit
        _mark(item)
    kept = [item for item in items if _is_asked_for(config, item)]
    if len(kept) < len(items):
        ours = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in ours])
        items[:] = kept


def _mark(item: pytest.Item) -> None:
    """Mark what follows from the kind of a test and from its fixtures; refuse what contradicts."""
    if (kind := _kind(item)) in REALTIME:
        item.add_marker(pytest.mark.realtime)
    elif kind == "threes":
        item.add_marker(pytest.mark.threes)
    if _is_real(item) or REAL_SERVERS & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.processes)
    if item.get_closest_marker("realtime") and FAIL_AT_ONCE & _parts(item):
        raise pytest.UsageError(f"{item.nodeid}: rules are not bound to real time")
    if item.get_closest_marker("processes") and _is_unread_by_together(item):
        raise pytest.UsageError(f"{item.nodeid}: it starts processes: mark it `processes`")


def _is_asked_for(config: pytest.Config, item: pytest.Item) -> bool:
    only, again = config.getoption("only"), config.getoption("again")
    if again is not None:
        named = again.read_text("utf-8").splitlines()
        if item.nodeid not in named and item.nodeid.partition("::")[0] not in named:
            return False
    if only == "quick":
        left_out = {"processes", "realtime", "slow"} & {mark.name for mark in item.iter_markers()}
        return _kind(item) in {"together", "meanwhile"} and not left_out
    return only is None or _kind(item) == only


def _parts(item: pytest.Item) -> frozenset[str]:
    return _parts_of(item.path)


@functools.cache
def _parts_of(path: Path) -> frozenset[str]:
    return frozenset(path.relative_to(TESTS).parts)


def _is_real(item: pytest.Item) -> bool:
    return bool(REAL & _parts(item) or item.get_closest_marker("e2e"))


def _is_unread_by_together(item: pytest.Item) -> bool:
    return bool(MEANWHILE & _parts(item)) and not NOT_MEANWHILE.search(item.path.read_text("utf-8"))


def _place(item: pytest.Item) -> int:
    name = item.path.stem.removeprefix("test_")
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def _in_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """Returns them with files that compute between files that wait, so that all cores are busy all
    the time. The last files of either are short ones, those of `core` and of `apps`."""
    files: tuple[list[Path], list[Path]] = ([], [])
    for path, item in {item.path: item for item in items}.items():
        files[bool(COMPUTE & _parts(item))].append(path)
    places = {
        path: (number + 0.5) / len(some)
        for some in files
        for number, path in enumerate(sorted(some, reverse=True))
    }
    return sorted(items, key=lambda item: places[item.path])


def _kind(item: pytest.Item) -> str:
    """Returns which of KINDS it is: as the nearest marker says, else by its place."""
    said = (marker.name for marker in item.iter_markers() if marker.name in KINDS)
    kind = next(said, None)
    if kind not in REALTIME and item.get_closest_marker("realtime"):
        return "quiet"
    if kind is not None:
        return kind
    if _is_real(item):
        return "threes"
    computes = MEANWHILE & _parts(item) and not item.get_closest_marker("processes")
    return "meanwhile" if computes else "together"


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
    _list_skips(config.getoption("skips"), stats.get("skipped", ()))
    failures = [*stats.get("failed", ()), *stats.get("error", ())]
    limited = [one for one in failures if {"realtime", "threes"} & {*getattr(one, "keywords", ())}]
    file = config.getoption("first_failures")
    if file is None or not limited:
        return
    with file.open("a", encoding="utf-8") as listed:
        listed.writelines(f"{name}\n" for name in dict.fromkeys(one.nodeid for one in limited))
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and len(limited) == len(failures):
        session.exitstatus = pytest.ExitCode.OK


def _list_skips(file: Path | None, skipped: Iterable[pytest.TestReport]) -> None:
    if file is None:
        return
    with file.open("a", encoding="utf-8") as listed:
        for report in skipped:
            _, _, reason = cast("tuple[str, int, str]", report.longrepr)
            listed.write(f"{reason.removeprefix('Skipped: ').splitlines()[0]}\t{report.nodeid}\n")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For `-n auto`, by the cores that this process may use. Those of `make check` wait for most of
    their time, in which others compute. Of those that run together so much is done by processes of
    their own that two more are enough, and those that compute wait for nothing."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        cores = os.cpu_count() or 1
    match config.getoption("only"):
        case "quick":
            return min(3 * cores, WORKERS_MAX)
        case "meanwhile":
            return min(cores, WORKERS_MAX)
    return min(cores + 2, WORKERS_MAX)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Each file is a series on one worker, so that what its tests share is made once, and of the
    threes those about faults are one together, since they use the same federations again. Where
    tests are long a worker is given its next series as late as can be: it starts the last test of
    one as soon as it knows the first of the next, which another worker may be free to begin."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    are_long = config.getoption("only") in {"threes", "quiet"}

    class Series(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "faults" if "/test_faults_" in file else file

        def _reschedule(self, node: Any) -> None:
            is_early = self._pending_of(self.assigned_work[node]) > 1
            if not (are_long and is_early and self.workqueue):
                super()._reschedule(node)

    return Series(config, log)


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
