"""Where `lease run` has the address of Redis from: a password in it is nobody else's business."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from spillover.cli import main
from spillover.cli.parsing import redis_url

VARIABLE = "SPILLOVER_REDIS_URL"
JOBS = """
def serve(partition, epoch, stop_event):
    stop_event.wait()
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A member, but for the Redis."""
    (tmp_path / "jobs.py").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return [
        *("lease", "run", "--group", "g", "--node", "n", "--partitions", "2"),
        *("--handler", "python:jobs:serve"),
    ]


def test_the_environment_is_asked_where_no_option_is_given(monkeypatch):
    monkeypatch.setenv(VARIABLE, "redis://environment")
    assert redis_url("redis://option") == "redis://option"
    assert redis_url(None) == "redis://environment"
    monkeypatch.setenv(VARIABLE, "")
    assert redis_url(None) is None


def test_without_either_one_line_says_so(command, monkeypatch, capsys):
    """And exit status 2; the demo starts its own, unless asked not to."""
    monkeypatch.delenv(VARIABLE, raising=False)
    for arguments in (command, ["lease", "demo", "--redis"]):
        assert main(arguments) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("spillover: --redis: expected ")
        assert VARIABLE in err


@pytest.mark.processes
def test_the_password_is_seen_nowhere(command, free_url):
    """Not in the processes' command lines, nor in what they say."""
    address = free_url.removeprefix("http://")
    environment = {**os.environ, VARIABLE: f"redis://:s3cret@{address}/0"}
    member = subprocess.Popen(
        [sys.executable, "-m", "spillover", *command],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        lines = [json.loads(member.stdout.readline()) for _ in range(2)]
        assert [line["event"] for line in lines] == ["serving", "redis_down"]
        assert address in lines[1]["problem"]
        listed = subprocess.run(
            ["ps", "-A", "-ww", "-o", "command="], capture_output=True, text=True, check=True
        ).stdout
        assert "jobs:serve" in listed
        assert "s3cret" not in listed
    finally:
        member.kill()
        out, err = member.communicate(timeout=30)
    assert "s3cret" not in json.dumps(lines) + out + err
