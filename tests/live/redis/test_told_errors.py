"""What errors on the way to Redis mean for whoever asked, what addresses may say, and calls that
end within their time: at a server that answers as it is told to."""

import asyncio
import ssl
import threading
import time
from importlib.util import find_spec

import pytest

if find_spec("redis") is None:
    pytest.skip("the extra `leases`", allow_module_level=True)

from redis import exceptions

from spillover.live.redis.address import parse_address
from spillover.live.redis.connection import (
    RedisLink,
    close_quietly,
    open_client,
    told_error,
)
from spillover.live.redis.pools import BlockingPool
from spillover.live.redis.secured import redis_context
from spillover.model.errors import InputError, StoreRefused, StoreUnreachable
from support.scripted_redis import bulk, scripted_redis

LIMIT_S = 20.0


def runs(main):
    async def limited():
        async with asyncio.timeout(LIMIT_S):
            await main()

    asyncio.run(limited())


# --- what errors mean -------------------------------------------------------------------------


WITHIN = "Error running script (call to f_0a1b): @user_script:53: @user_script: 53:"
"""What Redis before 7 puts before an error of a command."""


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (exceptions.AuthenticationError("WRONGPASS"), StoreRefused,
         "wants a user or password other than given: WRONGPASS"),
        (exceptions.ConnectionError("unauthenticated bulk length"), StoreRefused,
         "wants a user or password other than given: unauthenticated bulk length"),
        (exceptions.ReadOnlyError("no"), StoreRefused,
         "is read-only, a replica perhaps: leases need its primary"),
        (exceptions.ResponseError(f"{WITHIN} -READONLY no"), StoreRefused,
         "is read-only, a replica perhaps: leases need its primary"),
        (exceptions.ResponseError(f"{WITHIN} ERR no such key"), StoreRefused,
         "refused: ERR no such key"),
        (exceptions.BusyLoadingError("it loads"), StoreUnreachable, "is not ready: it loads"),
        (exceptions.MasterDownError("no link"), StoreUnreachable, "is not ready: no link"),
        (exceptions.ClusterDownError("down"), StoreUnreachable,
         "is part of a Redis Cluster (CLUSTERDOWN), which is not supported: give a single primary"),
        (exceptions.MovedError("1 h:2"), StoreRefused,
         "is part of a Redis Cluster (MOVED), which is not supported: give a single primary"),
        (exceptions.ResponseError("unknown command 'AUTH', with args beginning with: 's3cret'"),
         StoreRefused,
         "does not know a command of Redis: expected the primary, no Sentinel and no proxy"),
        (exceptions.ResponseError("MASTERDOWN no link"), StoreUnreachable,
         "is not ready: MASTERDOWN no link"),
        (exceptions.ResponseError("FAILOVER"), StoreUnreachable, "is not ready: FAILOVER"),
        (exceptions.ResponseError("ERR FAILOVER"), StoreRefused, "refused: ERR FAILOVER"),
        (exceptions.ResponseError("ERR a\nb"), StoreRefused, "refused: ERR a"),
        (exceptions.ResponseError(""), StoreRefused, "refused: ResponseError"),
        (exceptions.TimeoutError("x"), StoreUnreachable, "did not answer in time"),
        (TimeoutError(), StoreUnreachable, "did not answer in time"),
        (AttributeError("no attribute"), StoreUnreachable,
         "cannot be reached: the connection was given up this moment"),
        (exceptions.ConnectionError("reset"), StoreUnreachable, "cannot be reached: reset"),
        (OSError("no way"), StoreUnreachable, "cannot be reached: no way"),
    ],
)  # fmt: skip
def test_each_error_says_whether_redis_refused_or_nothing_is_known(error, kind, said):
    told = told_error(error, "redis://h:1/0")
    assert (type(told), str(told)) == (kind, f"redis://h:1/0 {said}")


def test_closing_goes_on_after_an_error_of_the_library_and_stops_at_a_bug():
    done = []

    def close(error):
        async def closing():
            done.append(error)
            if error is not None:
                raise error

        return closing

    known = (exceptions.RedisError(), OSError(), RuntimeError(), AttributeError(), ValueError())
    runs(lambda: close_quietly(*(close(error) for error in (*known, None))))
    assert done == [*known, None]
    with pytest.raises(LookupError):
        runs(lambda: close_quietly(close(LookupError())))


# --- addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "redis://h", "redis://h/", "redis://h/12", "unix:///run/redis.sock",
        "redis://h/0?db=1&username=u&password=&ssl_ca_certs=c&ssl_cert_reqs=none",
        "redis://h?password=a@b", "redis://:a@b@h", "REDIS://h", "unix:///run/a@b",
    ],
)  # fmt: skip
def test_what_an_address_may_say(url):
    parse_address(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h/x", r"expected redis://\[user"),
        ("redis://h/²", r"expected redis://\[user"),
        ("redis://h/-1", r"expected redis://\[user"),
        ("redis://h?max_connections=", "got max_connections"),
        ("unix:///s?db=1&retry=2", "got retry"),
    ],
)
def test_what_an_address_may_not_say(url, said):
    with pytest.raises(InputError, match=said):
        parse_address(url)


SPECIAL = ["#", "/", "?", "%", "%4", "[", "]", "\\", " ", "\t", "\n", "?a=b", "#1", "/1", "?db"]


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("shape", ["u:{}@h", "u:{}@h:1/0", ":{}@h", "u:12{}34@h", ":{}", "{}@h"])
def test_no_part_of_a_password_that_is_not_encoded_is_told(special, shape):
    """Whatever the character cuts off: a port, a path, an option, a fragment."""
    secret = f"pass{special}word"
    with pytest.raises(InputError) as raised:
        parse_address("redis://" + shape.format(secret))
    told = str(raised.value).replace("user:password@", "").replace("a user or password", "")
    assert "pass" not in told, told
    assert "word" not in told.replace("username, password", ""), told


@pytest.mark.parametrize("url", ["u:12#34@h", "u:12/34@h", "u:12?34@h", ":%zz@h", ":?...", "a#@h"])
def test_an_address_that_was_not_encoded_says_how(url):
    with pytest.raises(InputError, match="percent-encoded: # is %23"):
        parse_address(f"redis://{url}")


# --- calls ------------------------------------------------------------------------------------


async def test_an_answer_that_never_ends_ends_with_the_time_of_its_call():
    """Each piece of it comes in time; the whole would never."""
    pause, stops = threading.Event(), threading.Event()

    def for_ever(_):
        until_s = time.monotonic() + 2.0 * LIMIT_S
        server._lines[-1].sendall(b"$1000000\r\n")
        while time.monotonic() < until_s and not stops.is_set():
            server._lines[-1].sendall(b"x")
            pause.wait(0.01)

    with scripted_redis(for_ever) as server:
        link = RedisLink(server.url, 0.25)
        with pytest.raises(StoreUnreachable, match="did not answer in time"):
            await link.call("GET", "k")
        await link.close()
        stops.set()


# --- connections ------------------------------------------------------------------------------


async def test_after_a_replica_said_so_each_connection_is_made_anew_once():
    """A name may lead to another server by then."""
    told = {"SET": b"-READONLY no\r\n"}

    with scripted_redis(lambda words: told.get(words[0], bulk("v"))) as server:
        link = RedisLink(server.url, LIMIT_S)
        for count in (1, 2, 3):
            assert await link.call("GET", "k") == "v"
            assert server.accepted == count
            with pytest.raises(StoreRefused, match="is read-only"):
                await link.call("SET", "k", "v")
            assert server.accepted == count
        await link.close()


def test_a_pool_for_threads_makes_its_connections_anew_too():
    with scripted_redis(lambda _: b"+PONG\r\n") as server:
        pool = BlockingPool.from_url(server.url, max_connections=2, protocol=2)

        def accepted_after_a_call():
            connection = pool.get_connection()
            connection.send_command("PING")
            assert connection.read_response() == b"PONG"
            pool.release(connection)
            return server.accepted

        assert [accepted_after_a_call(), accepted_after_a_call()] == [1, 1]
        pool.connect_anew()
        assert [accepted_after_a_call(), accepted_after_a_call()] == [2, 2]
        pool.disconnect()


async def test_a_connection_that_cannot_be_made_anew_is_not_lost_to_its_pool():
    with scripted_redis(lambda _: bulk("v")) as server:
        client = open_client(server.url, 5.0, connections=1)
        assert await client.execute_command("GET", "k") == "v"
        pool = client.connection_pool
        connection = await pool.get_connection()
        await pool.release(connection)
        pool.connect_anew()
        port, connection.port = connection.port, 1
        with pytest.raises(exceptions.ConnectionError):
            await client.execute_command("GET", "k")
        connection.port = port
        assert await client.execute_command("GET", "k") == "v"
        await client.aclose()
        await pool.disconnect()


@pytest.mark.parametrize(("verifies", "mode"), [(True, ssl.CERT_REQUIRED), (False, ssl.CERT_NONE)])
def test_a_redis_with_tls_has_to_prove_its_name_unless_nobody_asks(verifies, mode):
    context = redis_context("", verifies=verifies)
    assert (context.verify_mode, context.check_hostname) == (mode, verifies)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
