"""How the process that renews gets to Redis: what URLs mean, and a connection of its own."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from spillover.live.leases.renewal.resp import ErrorReply, RedisFailed, RespConnection, pack
from spillover.live.redis.address import parse_address

PASSWORD = "swordfish"  # noqa: S105 - of a server that lives as long as a test


def connect(url, timeout_s=5.0):
    return RespConnection(parse_address(url), timeout_s, lambda: None)


def ask(connection, *words):
    return connection.call(pack([str(word).encode() for word in words]))


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
