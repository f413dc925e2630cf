"""How the process that renews gets to Redis: what URLs mean, and a connection of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from spillover.live.leases.renewal.resp import ErrorReply, RedisFailed, RespConnection, pack
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.redis.address import parse_address
from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes

PASSWORD = "swordfish"  # noqa: S105 - of a server that lives as long as a test


def connect(url, timeout_s=5.0):
    return RespConnection(parse_address(url), timeout_s, lambda: None)


def ask(connection, *words):
    return connection.call(pack([str(word).encode() for word in words]))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", {"host": "h", "port": 6379, "number": 0, "tls": False, "password": ""}),
        ("redis://:p%40@h:1/3", {"port": 1, "number": 3, "user": "", "password": "p@"}),
        ("rediss://u:p@[::1]:1", {"host": "::1", "tls": True, "user": "u", "verify": True}),
        ("rediss://h?ssl_cert_reqs=none&db=2", {"verify": False, "number": 2}),
        ("redis://h?username=u&password=p", {"user": "u", "password": "p"}),
        ("unix:///run/redis.sock?db=4", {"path": "/run/redis.sock", "number": 4}),
        ("unix://:p@/run/redis.sock", {"path": "/run/redis.sock", "password": "p"}),
    ],
)
def test_urls_mean_what_they_mean_to_the_library(url, expected):
    assert expected.items() <= parse_address(url).items()


@pytest.mark.parametrize(
    "url", ["", "h:1", "http://h", "unix://", "redis://[::1", "redis://h:x", "redis://h/x"]
)
def test_what_is_no_url_is_refused(url):
    with pytest.raises(InputError, match="redis: url: expected redis://"):
        parse_address(url)


@pytest.mark.parametrize(
    "given", [{"node": "a|b"}, {"incarnation": ""}, {"group": "{"}, {"max_progress_ms": 0.0}]
)
def test_plans_are_checked(given):
    given = {"group": "g", "node": "a", "incarnation": "i"} | given
    group = given.pop("group")
    with pytest.raises(InputError):
        make_plan("redis://h", group, 1, LeaseTimes(), **given)


def test_answers_of_all_kinds_are_read(redis_server, redis_servers):
    connection, key = connect(redis_server.url), redis_servers.new_name()
    assert ask(connection, "SET", key, "x" * 200_000) == b"OK"
    assert ask(connection, "GET", key) == b"x" * 200_000
    assert ask(connection, "GET", key + "-") is None
    assert ask(connection, "INCR", key + "n") == 1
    assert ask(connection, "EVAL", "return {1, 'a\\r\\n', {false}}", 0) == [1, b"a\r\n", [None]]
    assert isinstance(ask(connection, "NO-SUCH"), ErrorReply)
    connection.close()
    assert ask(connection, "PING") == b"PONG"  # connects anew
    connection.close()


def test_the_rest_of_an_answer_that_came_too_late_is_not_the_next_ones():
    """Half of it had been read when its time was over; the next connection begins at nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        with closing(connect(f"redis://127.0.0.1:{port}", timeout_s=0.1)) as connection:
            answers = iter([b"$100\r\nhalf", b"+PONG\r\n"])

            def answer_once():
                line, _ = listening.accept()
                line.recv(1000)
                line.sendall(next(answers))
                return line

            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(answer_once)
                with pytest.raises(RedisFailed, match="in time"):
                    ask(connection, "GET", "k")
                second = pool.submit(answer_once)
                connection._timeout_s = 20.0
                assert ask(connection, "PING") == b"PONG"
                for line in (first.result(), second.result()):
                    line.close()


def test_passwords_numbers_and_sockets(redis_servers, tmp_path):
    path = tmp_path / "s"
    options = ("--requirepass", PASSWORD, "--unixsocket", str(path))
    with redis_servers.running(tmp_path, *options, password=PASSWORD) as server:
        with closing(connect(f"redis://:{PASSWORD}@127.0.0.1:{server.port}/3")) as tcp:
            assert ask(tcp, "SET", "k", "v") == b"OK"
        with closing(connect(f"unix://default:{PASSWORD}@{path}?db=3")) as unix:
            assert ask(unix, "GET", "k") == b"v"
        with closing(connect(server.url)) as without:
            assert isinstance(ask(without, "PING"), ErrorReply)
        wrong = f"redis://:{PASSWORD}{PASSWORD}@127.0.0.1:{server.port}/3"
        for refused in (wrong, f"redis://:{PASSWORD}@127.0.0.1:{server.port}/99"):
            with pytest.raises(RedisFailed) as failed:
                ask(connect(refused), "PING")
            assert failed.value.refused
            assert PASSWORD not in str(failed.value)


@pytest.mark.usefixtures("redis_with_tls")
def test_tls(require, redis_servers, tmp_path):
    require(shutil.which("openssl"), "openssl")
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    port = redis_servers.free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "no"]
    options += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    with redis_servers.running(tmp_path, *options):
        for query in (f"ssl_ca_certs={certificate}", "ssl_cert_reqs=none"):
            connection = connect(f"rediss://localhost:{port}/0?{query}")
            assert ask(connection, "PING") == b"PONG"
            connection.close()
        with pytest.raises(RedisFailed, match="cannot be reached"):
            ask(connect(f"rediss://localhost:{port}/0"), "PING")


def test_nobody_there_and_nobody_that_speaks_redis(redis_servers):
    with pytest.raises(RedisFailed, match="cannot be reached") as failed:
        ask(connect(f"redis://127.0.0.1:{redis_servers.free_port()}"), "PING")
    assert not failed.value.refused
    with pytest.raises(RedisFailed, match="cannot be reached"):
        ask(connect("unix:///nowhere"), "PING")
