"""Where `lease run` has the address of Redis from: a password in it is nobody else's business."""

import pytest

from spillover.cli.parsing import redis_url
from spillover.live.redis.rotation import RedisAddress
from spillover.model.errors import InputError

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


def test_without_either_one_line_says_so(command, monkeypatch, refused):
    """The demo starts its own, unless asked not to."""
    monkeypatch.delenv(VARIABLE, raising=False)
    for words in (command, ["lease", "demo", "--redis"]):
        said = refused(*words)
        assert said.startswith("--redis: expected ")
        assert VARIABLE in said


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


def test_files_that_cannot_be_read(command, tmp_path, refused):
    for file, words in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file")):
        said = refused(*command, "--redis-url-file", file)
        assert said.startswith("--redis-url-file: expected a file that can be read")
        assert words in said


def test_what_is_no_address_is_not_shown(command, tmp_path, refused):
    """It may be nearly one, and then with its password."""
    file = tmp_path / "redis-url"
    file.write_text("redis//:s3cret@h")
    (tmp_path / "one.yaml").write_text("name: one\nclusters: [{id: a, servers: 1}]\n")
    node = ["node", "--topology", tmp_path / "one.yaml", "--cluster", "a"]
    for words in (command, [*node, "--bind", "127.0.0.1:0"]):
        said = refused(*words, "--redis-url-file", file)
        assert "expected redis://[user:password@]host:port/number, rediss:// or unix://" in said
        assert "s3cret" not in said
