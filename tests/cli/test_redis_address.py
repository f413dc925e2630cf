"""Where `lease run` has the address of Redis from: a password in it is nobody else's business."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from spillover.cli import main
from spillover.cli.parsing import redis_url
from spillover.live.redis.rotation import RedisAddress
from spillover.model.errors import InputError
from support.process_table import processes

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


def test_a_file_may_have_it(tmp_path, monkeypatch):
    """In its first line; it is for one command, while the environment is for all."""
    monkeypatch.setenv(VARIABLE, "redis://environment")
    file = tmp_path / "redis-url"
    file.write_text("  rediss://:s3cret@file/0 \nand more\n")
    assert redis_url(None, str(file)) == file
    assert RedisAddress(file).url == "rediss://:s3cret@file/0"
    with pytest.raises(
        InputError, match=r"^--redis-url-file: expected without an address in --redis$"
    ):
        redis_url("redis://option", str(file))


@pytest.mark.parametrize("content", [b"", b"\n", b"  \nredis://second", b"\xff\xfe"])
def test_files_without_one(content, tmp_path):
    file = tmp_path / "redis-url"
    file.write_bytes(content)
    with pytest.raises(InputError, match="expected an address in the first line"):
        redis_url(None, str(file))


def test_files_that_cannot_be_read(command, tmp_path, capsys):
    for file, words in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file")):
        assert main([*command, "--redis-url-file", str(file)]) == 2
        line = capsys.readouterr().err
        assert line.startswith("spillover: --redis-url-file: expected a file that can be read")
        assert words in line


def test_what_is_no_address_is_not_shown(command, tmp_path, capsys):
    """It may be nearly one, and then with its password."""
    file = tmp_path / "redis-url"
    file.write_text("redis//:s3cret@h")
    (tmp_path / "one.yaml").write_text("name: one\nclusters: [{id: a, servers: 1}]\n")
    node = ["node", "--topology", str(tmp_path / "one.yaml"), "--cluster", "a"]
    for words in (command, [*node, "--bind", "127.0.0.1:0"]):
        assert main([*words, "--redis-url-file", str(file)]) == 2
        line = capsys.readouterr().err
        assert "expected redis://[user:password@]host:port/number, rediss:// or unix://" in line
        assert "s3cret" not in line


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
        listed = "\n".join(line for _, line in processes().values())
        assert "jobs:serve" in listed
        assert "s3cret" not in listed
    finally:
        member.kill()
        out, err = member.communicate(timeout=30)
    assert "s3cret" not in json.dumps(lines) + out + err
