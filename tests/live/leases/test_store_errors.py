"""What can be wrong with a Redis, or with the way to it, and what the lease store says then."""

import asyncio
import subprocess
import sys

import pytest

from spillover.live.leases.store import RedisLeaseStore
from spillover.model.errors import InputError, StoreRefused, StoreUnreachable
from spillover.model.extras import how_to_get
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes()
TIMEOUT_S = 0.2


async def told(url, group, operation, *arguments, **given):
    """What the operation of a fresh store raises, as text."""
    expected = given.pop("expected")
    given = {"partitions": 4, "times": TIMES, "timeout_s": 5.0} | given
    store = RedisLeaseStore(url, group, **given)
    try:
        with pytest.raises(expected) as raised:
            await getattr(store, operation)(*arguments)
    finally:
        await store.close()
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.fixture
def group(redis_servers):
    return redis_servers.new_name()


async def test_a_group_has_one_number_of_partitions_one_rule_and_one_balance(redis_server, group):
    store = RedisLeaseStore(redis_server.url, group, 4, TIMES)
    await store.join("a", "i")
    await store.close()
    for operation, arguments in (
        ("join", ("b", "i")),
        ("renew", ("b", "i", [])),
        ("grab", (0, "b", 0.0)),
    ):
        url, wrong = redis_server.url, {"expected": InputError}
        message = await told(url, group, operation, *arguments, partitions=5, **wrong)
        assert message.startswith("lease group: partitions: expected 4, as the group has it, got 5")
        assert f"{{spillover:{group}}}:group" in message
        message = await told(url, group, operation, *arguments, rule="blog", **wrong)
        assert message.startswith("lease group: rule: expected guarded, as the group has it")
        message = await told(url, group, operation, *arguments, balance="load", **wrong)
        assert message.startswith("lease group: balance: expected count, as the group has it")
    redis_server.client.hset(f"{{spillover:{group}}}:group", "partitions", "")
    message = await told(redis_server.url, group, "join", "b", "i", expected=InputError)
    assert message.startswith("lease group: partitions: expected nothing, as the group has it")


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"partitions": 0}, "partitions: expected at least 1, got 0"),
        ({"rule": "fair"}, "rule: expected one of guarded, blog, got 'fair'"),
        ({"balance": "fair"}, "balance: expected one of count, load, got 'fair'"),
        ({"balance": "load", "rule": "blog"}, "balance: expected count with the blog's rule"),
        ({"group": "a}b"}, "group: expected 1 to 63 of"),
        ({"url": "localhost:6379"}, "redis: url: expected redis://"),
        ({"url": "redis://localhost:port"}, "redis: url: expected redis://"),
        ({"url": "redis://localhost/name"}, "redis: url: expected redis://"),
        ({"url": "redis://[::1"}, "redis: url: expected redis://"),
        ({"url": "redis://localhost/0?foo=1"}, "redis: url: expected of options only db, "),
        ({"url": "redis://localhost/0?decode_responses=no"}, "got decode_responses"),
    ],
)
def test_bad_input_makes_no_store(redis_servers, given, part):
    good = {"url": "redis://localhost", "group": "g", "partitions": 1, "times": TIMES}
    with pytest.raises(InputError) as raised:
        RedisLeaseStore(**good | given)
    assert part in str(raised.value)


@pytest.mark.parametrize("node", ["", "a|b", "a b", "x" * 64, "é"])
async def test_ids_of_nodes_fit_into_values(redis_server, group, node):
    """They stand before a `|`."""
    assert "1 to 63" in await told(redis_server.url, group, "join", node, "i", expected=InputError)


async def test_a_password_is_wanted_and_never_shown(redis_servers, tmp_path, group):
    secret = ("--requirepass", "sesame")
    with redis_servers.running(tmp_path, *secret, password=secret[1]) as server:
        for user in ("", ":open@", "ali:sesame@"):
            url = server.url.replace("//", f"//{user}")
            message = await told(url, group, "join", "a", "i", expected=StoreRefused)
            assert "wants a user or password other than given" in message
            assert "open@" not in message
            assert "sesame" not in message
        url = server.url.replace("//", "//:sesame@")
        message = await told(url, group, "join", "a|", "i", expected=InputError)
        assert "node" in message


async def test_no_redis_and_what_is_none(redis_server, redis_servers, group):
    nobody = f"redis://127.0.0.1:{redis_servers.free_port()}"
    message = await told(nobody, group, "join", "a", "i", expected=StoreUnreachable)
    assert message.startswith(f"{nobody} cannot be reached")
    message = await told(
        "redis://redis.invalid", group, "survey", "a", timeout_s=0.5, expected=StoreUnreachable
    )
    assert message.startswith("redis://redis.invalid ")
    redis_server.client.set(f"{{spillover:{group}}}:group", "taken")
    message = await told(redis_server.url, group, "join", "a", "i", expected=StoreRefused)
    assert "WRONGTYPE" in message
    far = redis_server.url.replace("/0", "/99")
    assert "out of range" in await told(far, group, "join", "a", "i", expected=StoreRefused)
    redis_server.client.acl_setuser("reader", enabled=True, nopass=True, categories=["+@read"])
    url = redis_server.url.replace("//", "//reader:x@")
    assert "permissions" in await told(url, group, "join", "a", "i", expected=StoreRefused)


@pytest.mark.parametrize("broken", ["half-open", "reset"])
async def test_a_broken_connection_is_replaced(redis_servers, redis_server, group, broken):
    """Half-open: nothing comes back and nothing says so. The call after that has a new one."""
    async with redis_servers.Way(redis_server.port) as way:
        store = RedisLeaseStore(way.url, group, 4, TIMES, timeout_s=TIMEOUT_S)
        await store.join("a", "i")
        assert way.accepted == 1
        if broken == "half-open":
            way.freeze()
        else:
            way.cut()
        with pytest.raises(StoreUnreachable):
            await store.renew("a", "i", [])
        way.thaw()
        assert (await store.renew("a", "i", [])).held == []
        assert way.accepted == 2
        await store.close()


async def test_more_calls_than_connections_wait_for_one(redis_servers, redis_server, group):
    async with redis_servers.Way(redis_server.port) as way:
        store = RedisLeaseStore(way.url, group, 4, TIMES)
        await asyncio.gather(*(store.survey("a") for _ in range(200)))
        assert way.accepted == 8
        await store.close()


@pytest.mark.processes
@pytest.mark.parametrize("module", ["store", "hints"])
def test_the_library_is_loaded_late_and_its_absence_told(module):
    """Importing takes no `redis`; making a store does."""
    code = f"""
import sys
import spillover.live.leases.{module}
assert "redis" not in sys.modules
sys.modules["redis"] = None
from spillover.live.leases.store import RedisLeaseStore
from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes
try:
    RedisLeaseStore("redis://localhost", "g", 1, LeaseTimes())
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"redis: a lease group needs {how_to_get('leases')}\n"
