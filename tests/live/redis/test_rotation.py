"""A password of Redis that changes while connections to it come and go."""

import asyncio
import logging
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from spillover.live.leases.renewal.resp import RedisFailed, RespConnection, pack
from spillover.live.leases.streams.client import Client
from spillover.live.leases.streams.steps import Run
from spillover.live.redis.address import read_again
from spillover.live.redis.connection import RedisLink, Script
from spillover.live.redis.rotation import RedisAddress
from spillover.model.errors import InputError, StoreRefused

TIMEOUT_S = 20.0
ONE = Script.of("return 1")


@pytest.mark.processes
def test_whoever_connects_anew_uses_the_password_of_now(require, redis_servers, tmp_path):
    require(find_spec("redis"), "the extra `leases`")
    file = tmp_path / "url"
    with redis_servers.running(tmp_path, "--requirepass", "old", password="old") as server:  # noqa: S106
        here = server.url.rpartition("@")[2].removeprefix("redis://")

        def say(password):
            file.write_text(f"redis://:{password}@{here}\n")

        def steps():
            return (yield Run(ONE, (), ()))

        say("old")
        link, client = RedisLink(file, TIMEOUT_S), Client(file, TIMEOUT_S)
        renewal = RespConnection(RedisAddress(file).parts, TIMEOUT_S, lambda: None)

        def expect_refusal(call):
            with pytest.raises((StoreRefused, RedisFailed), match=r"user or password|WRONGPASS"):
                call()

        with asyncio.Runner() as runner, closing(client), closing(renewal):
            calls = [
                lambda: runner.run(link.run(ONE, ())),
                lambda: client.carry_out(steps()),
                lambda: renewal.call(pack([b"EVAL", b"return 1", b"0"])),
            ]
            assert [call() for call in calls] == [1, 1, 1]
            server.client.config_set("requirepass", "new")
            assert [call() for call in calls] == [1, 1, 1], "connections that are open stay"
            server.client.client_kill_filter(_type="normal", skipme=True)
            for call in calls:
                with pytest.raises(Exception, match=r"reset|closed|reached|user or password"):
                    call()
                expect_refusal(call)
            say("new")
            assert [call() for call in calls] == [1, 1, 1]
            runner.run(link.close())


def test_whoever_has_another_working_directory_reads_the_same_files(tmp_path, monkeypatch):
    """Renewals do, so that a password that had changed cost all leases."""
    monkeypatch.chdir(tmp_path)
    file = Path("url")
    file.write_text("rediss://:old@h:1/2?ssl_ca_certs=ca.pem")
    address = RedisAddress(file)
    file.write_text("rediss://:new@h:1/2?ssl_ca_certs=ca.pem")
    monkeypatch.chdir("/")
    found = read_again(address.parts)
    assert (found["password"], found["ca"]) == ("new", str(tmp_path / "ca.pem"))


def test_a_file_that_cannot_be_used_leaves_all_as_it_was_and_is_told_once(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    file = tmp_path / "url"
    file.write_text("redis://u:s3cret-1@h:1/2")
    address = RedisAddress(file)
    for wrong in (
        "",
        "redis://:s3cr#t@h:1/2",
        "redis://:s3cret-2@elsewhere:1/2",
        "redis://:s3cret-2@h:1/3",
    ):
        file.write_text(wrong)
        address.look()
        address.look()
        assert address.credentials == ("u", "s3cret-1")
    file.unlink()
    address.look()
    assert len(caplog.records) == 4, "another place and another database are told alike"
    address.look_now()
    assert len(caplog.records) == 5
    file.write_text("redis://:s3cret-2@h:1/2")
    address.look()
    assert address.credentials == ("s3cret-2",)
    assert "s3cr" not in caplog.text
    with pytest.raises(InputError, match="expected a file that can be read"):
        RedisAddress(tmp_path / "none")
