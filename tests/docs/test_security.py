"""The rules for Redis in security.md suffice for leases and for the configuration, and for nothing
else: a real Redis goes by exactly what the page says."""

import asyncio
import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from spillover.apps.node.doors import DOORS
from spillover.inputs.topology_file import short_text
from spillover.model.configuration import Stamp, of_file
from spillover.model.ids import ClusterId
from spillover.model.lease_times import LeaseTimes
from spillover.model.topology import Cluster, Topology
from support.loop import until

PAGE = Path(__file__).parents[2] / "services" / "docs" / "security.md"
PASSWORD = "s3cret-of-tests"  # noqa: S105
TIMES = LeaseTimes(
    normal_lease_ms=200, max_lease_ms=1500, max_shutdown_ms=300, min_grab_ms=100, held_delay_ms=2
)


def rules_of(user, **names):
    """What the page has a user be, with names and a password of this test."""
    (line,) = re.findall(rf"^user {user} (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    for placeholder, name in {"PASSWORD": PASSWORD, **names}.items():
        assert placeholder in line
        line = line.replace(placeholder, name)
    return line.split()


@contextmanager
def user_of(server, user, **names):
    """The url of a user of this server that has these rules; nothing may be refused to it."""
    own = f"{user}-{next(iter(names.values()))}"
    server.client.execute_command("ACL", "SETUSER", own, *rules_of(user, **names))
    address = server.url.removeprefix("redis://")
    try:
        yield f"redis://{own}:{PASSWORD}@{address}"
        log = server.client.execute_command("ACL", "LOG")
        refused = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in as_lists(log)]
        # How the library introduces itself, which Redis has rules for from 7.2 on. Before 7 it
        # tells of a refused command without the subcommand.
        introduced = "client", "client|setinfo"
        asked = [one for one in refused if one["object"] not in introduced]
        assert not [one for one in asked if one["username"] == own]
    finally:
        server.client.execute_command("ACL", "DELUSER", own)


def as_lists(log):
    """Entries as lists of names and values, however the library gives them."""
    return [
        [part for pair in one.items() for part in pair] if isinstance(one, dict) else one
        for one in log
    ]


@pytest.mark.parametrize("balance", ["count", "load"])
def test_the_rules_for_leases_suffice(redis_servers, redis_server, balance):
    """Two members serve, one leaves, the other takes over, and both are gone in the end."""
    from spillover.live.leases.group import LeaseGroup

    name = redis_servers.new_name()

    async def serve(_partition, _epoch, stop_event):
        await stop_event.wait_async()

    with user_of(redis_server, "leases", GROUP=name) as url:

        def member(node):
            return LeaseGroup(
                url, name, node=node, partitions=4, handler=serve, times=TIMES, balance=balance
            )

        async def main():
            async with asyncio.timeout(20.0), member("a") as first:
                async with member("b") as second:
                    await until(lambda: len(first.held) == len(second.held) == 2)
                    await second.drain()
                await until(lambda: len(first.held) == 4)
                await first.drain()

        asyncio.run(main())


@pytest.mark.usefixtures("redis_7")
def test_the_rules_for_the_configuration_suffice(redis_servers, redis_server):
    from spillover.live.membership.store import ConfigurationStore

    name = redis_servers.new_name()
    topology = Topology(name=name, clusters=(Cluster(id=ClusterId("a"), servers=1),))
    wanted = of_file(topology).next(("a", 1), topology, short_text(topology))
    heard = []

    nodes = user_of(redis_server, "configuration", FEDERATION=name)
    clients = user_of(redis_server, "clients", FEDERATION=name)
    with nodes as url, clients as url_of_clients:

        async def main():
            store = ConfigurationStore(url, name)
            reading = ConfigurationStore(url_of_clients, name)
            listening = [asyncio.create_task(one.listen(heard.append)) for one in (store, reading)]
            assert await store.put(wanted, Stamp(0)) is None
            await until(lambda: heard.count(wanted) > 1)
            for task in listening:
                task.cancel()
            await store.close()
            await reading.close()

        asyncio.run(main())


FORBIDDEN = (
    *("FLUSHALL", "KEYS *", "CONFIG GET dir", "ACL LIST", "SAVE", "SHUTDOWN", "MONITOR"),
    *("GET other", "HGETALL {spillover:other}:members", "HSET other a 1", "PUBLISH news 1"),
    *("SUBSCRIBE {spillover:other}:grab-lease", "SUBSCRIBE news", "REPLICAOF h 1"),
    *("SCRIPT FLUSH", "FUNCTION LIST", "MODULE LIST", "CLIENT LIST", "DEL {spillover:@}:group"),
)


@pytest.mark.usefixtures("redis_7")
@pytest.mark.parametrize(
    ("user", "place"),
    [("leases", "GROUP"), ("configuration", "FEDERATION")],
)
def test_the_rules_allow_nothing_else(user, place, redis_servers, redis_server):
    """Nobody else's keys and channels, not from within a script either, and nothing that is about
    the server."""
    from redis import Redis, exceptions

    name = redis_servers.new_name()
    own, ask = f"{user}-{name}", redis_server.client.execute_command
    ask("ACL", "SETUSER", own, *rules_of(user, **{place: name}))
    try:
        for command in FORBIDDEN:
            words = command.replace("@}", name + "}").split()
            assert ask("ACL", "DRYRUN", own, *words) != "OK", command
        script = "return redis.call('HGET', 'other', 'a')"
        with Redis(port=redis_server.port, username=own, password=PASSWORD) as client:
            assert client.eval("return 1", 0) == 1
            with pytest.raises(exceptions.ResponseError, match="access"):
                client.eval(script, 0)
    finally:
        ask("ACL", "DELUSER", own)


@pytest.mark.usefixtures("redis_7")
def test_the_rules_for_clients_let_them_read_and_change_nothing(redis_servers, redis_server):
    name = redis_servers.new_name()
    own, ask = f"clients-{name}", redis_server.client.execute_command
    key = f"{{spillover:{name}}}:configuration"
    ask("ACL", "SETUSER", own, *rules_of("clients", FEDERATION=name))
    try:
        assert ask("ACL", "DRYRUN", own, "HGET", key, "body") == "OK"
        changing = (f"HSET {key} body x", f"DEL {key}", f"PUBLISH {key} 1", "EVAL return 0")
        for command in (*FORBIDDEN, *changing):
            assert ask("ACL", "DRYRUN", own, *command.split()) != "OK", command
    finally:
        ask("ACL", "DELUSER", own)


def test_every_door_stands_in_the_threat_model():
    """Of a node by its path; each table of other services has its line. SECURITY.md leads here."""
    page = PAGE.read_text("utf-8")
    doors = page.partition("## Doors")[2].partition("\n## ")[0]
    told = {path.strip("/*") for path in re.findall(r"`(/[a-z./*]*)`", doors)}
    of_nodes = {path.split("/")[1] for path in DOORS} - {""}
    assert of_nodes <= told
    assert {"a lease member", "a producer of the distributed queue", "Redis"} <= {
        line.removeprefix("| ").split(" |")[0].split(" (")[0] for line in doors.splitlines()
    }
    assert "services/docs/security.md" in (PAGE.parents[2] / "SECURITY.md").read_text("utf-8")
