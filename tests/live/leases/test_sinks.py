"""Fenced sinks: nothing of an older epoch is taken, wherever the sink is.

Redis is real, SQLite is always there, PostgreSQL is started where it is installed.
"""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import threading
from contextlib import closing, contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.sinks.http_sink import EpochGate, epoch_headers, raise_if_fenced
from spillover.live.leases.sinks.sql_sink import SqlSink
from spillover.model.errors import InputError
from support.few import examples
from support.waiting import until


class Held:
    """A lease that is over when the test says so."""

    def __init__(self, epoch, partition=0):
        self.partition = partition
        self.epoch = epoch
        self.checks_left = 1_000

    def check(self):
        self.checks_left -= 1
        if self.checks_left < 0:
            raise Fenced(self.partition, self.epoch, "the lease is over")


def over(epoch, partition=0):
    lease = Held(epoch, partition)
    lease.checks_left = 0
    return lease


# --- Redis ------------------------------------------------------------------------------------


class SyncFace:
    """RedisSink and AsyncRedisSink, asked alike."""

    def __init__(self, server, name):
        from spillover.live.leases.sinks.redis_sink import RedisSink

        self.client = server.client
        self._sink = RedisSink(server.client, name)

    def claim(self, lease):
        return self._sink.claim(lease)

    def apply(self, lease, *commands, **given):
        return self._sink.apply(lease, *commands, **given)


class AsyncFace(SyncFace):
    """A loop and a client for each call."""

    def __init__(self, server, name):
        super().__init__(server, name)
        self._url, self._name = server.url, name

    def claim(self, lease):
        return self._run("claim", lease)

    def apply(self, lease, *commands, **given):
        return self._run("apply", lease, *commands, **given)

    def _run(self, operation, *arguments, **given):
        from redis.asyncio import Redis

        from spillover.live.leases.sinks.redis_sink import AsyncRedisSink

        async def running():
            async with Redis.from_url(self._url) as client:
                sink = AsyncRedisSink(client, self._name)
                return await getattr(sink, operation)(*arguments, **given)

        return asyncio.run(running())


@pytest.fixture(params=[SyncFace, AsyncFace], ids=["sync", "async"])
def redis_sink(request, redis_server, redis_servers):
    sink = request.param(redis_server, redis_servers.new_name())
    sink.key = redis_servers.new_name()
    return sink


def test_a_lease_that_ends_between_two_attempts_does_nothing(redis_sink):
    """Redis has forgotten the script: it is sent whole, but the lease is looked at anew."""
    redis_sink.client.script_flush()
    lease = Held(10)
    lease.checks_left = 1
    with pytest.raises(Fenced):
        redis_sink.apply(lease, ("INCR", redis_sink.key))
    assert redis_sink.client.get(redis_sink.key) is None


def test_a_batch_is_admitted_as_a_whole_or_not_at_all(redis_sink):
    """A thousand commands of an epoch that has been overtaken since the lease was looked at; also
    where the server has forgotten the script in between."""
    key = redis_sink.key
    batch = [("SET", f"{key}{i}", "old") for i in range(1000)]
    redis_sink.apply(Held(11), ("SET", key, "new"))
    for _ in range(2):
        with pytest.raises(Fenced):
            redis_sink.apply(Held(10), *batch, checkpoint="old")
        redis_sink.client.script_flush()
    assert redis_sink.client.keys(key + "*") == [key]
    assert len(redis_sink.apply(Held(11), *batch)) == 1000
    assert len(redis_sink.client.keys(key + "*")) == 1001


def test_a_long_command_is_done_and_one_that_is_too_long_is_refused_before_all(redis_sink):
    """What Lua could not pass on would end a batch in its middle."""
    from spillover.live.leases.sinks.redis_sink import WORDS_MAX

    key = redis_sink.key
    words = ["x"] * (WORDS_MAX - 2)
    assert redis_sink.apply(Held(1), ("RPUSH", key, *words)) == [len(words)]
    for bad in (("RPUSH", key, "x", *words), ("DEL",), (), "DEL"):
        with pytest.raises(InputError, match="commands: expected sequences of 2 to"):
            redis_sink.apply(Held(2), ("SET", key + "b", "1"), bad)
    assert redis_sink.client.exists(key + "b") == 0


def test_a_pipeline_is_no_client_of_a_sink(redis_server):
    """What is queued up could be half admitted."""
    from redis.asyncio import Redis

    from spillover.live.leases.sinks.redis_sink import AsyncRedisSink, RedisSink

    with pytest.raises(InputError, match="client: expected a client, not a pipeline"):
        RedisSink(redis_server.client.pipeline(), "s")
    with pytest.raises(InputError, match="client: expected a client, not a pipeline"):
        AsyncRedisSink(Redis.from_url(redis_server.url).pipeline(), "s")


@pytest.mark.parametrize("command", [("SET", "2"), ("DEL",)])
def test_an_older_epoch_writes_and_deletes_nothing(redis_sink, command):
    key = redis_sink.key
    redis_sink.apply(Held(11), ("SET", key, "1"), checkpoint="later")
    with pytest.raises(Fenced, match="epoch 11") as fenced:
        redis_sink.apply(Held(10), (command[0], key, *command[1:]), checkpoint="old")
    assert (fenced.value.partition, fenced.value.epoch) == (0, 10)
    with pytest.raises(Fenced):
        redis_sink.claim(Held(10))
    assert redis_sink.client.get(key) == "1"
    assert redis_sink.claim(Held(11)) == "later"
    redis_sink.apply(Held(10, partition=1), ("DEL", key))  # each partition has its own


def test_a_command_that_fails_leaves_the_checkpoint(redis_sink):
    from redis.exceptions import ResponseError

    key = redis_sink.key
    redis_sink.apply(Held(1), ("SET", key, "text"), checkpoint="1")
    with pytest.raises(ResponseError):
        redis_sink.apply(Held(1), ("INCR", key), checkpoint="2")
    assert redis_sink.claim(Held(1)) == "1"


@settings(max_examples=examples(45))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["claim", "apply"]), st.integers(0, 2), st.integers(7, 12)),
        max_size=12,
    )
)
def test_epochs_never_go_back(redis_server, redis_servers, steps):
    name = redis_servers.new_name()
    sink, seen, done = SyncFace(redis_server, name), {}, {}
    for what, partition, epoch in steps:
        lease, key = Held(epoch, partition), f"{name}:{partition}"
        call = sink.claim if what == "claim" else lambda one, k=key: sink.apply(one, ("INCR", k))
        if epoch < seen.get(partition, 0):
            with pytest.raises(Fenced):
                call(lease)
        else:
            call(lease)
            seen[partition] = epoch
            done[key] = done.get(key, 0) + (what == "apply")
    for key, count in done.items():
        assert int(sink.client.get(key) or 0) == count


# --- SQL --------------------------------------------------------------------------------------


@pytest.fixture
def sqlite(tmp_path):
    return lambda: sqlite3.connect(tmp_path / "sink.db", timeout=20.0, check_same_thread=False)


@pytest.fixture(scope="session")
def postgres_directory(require, tmp_path_factory):
    """A data directory of PostgreSQL, made once; as root, owned by its own user."""
    require(shutil.which("postgres") and find_initdb(), "postgres and initdb, of postgresql")
    try:
        import psycopg  # noqa: F401
    except ImportError:
        require(condition=False, reason="psycopg, with libpq")
    directory = tmp_path_factory.mktemp("postgres")
    if os.getuid() == 0:
        for above in directory.parents:
            if not above.stat().st_mode & stat.S_IXOTH:
                above.chmod(0o755)
        shutil.chown(directory, "postgres")
    options = ["-D", str(directory / "data"), "-U", "spillover", "-A", "trust", "--no-sync"]
    subprocess.run([find_initdb(), *options], **as_postgres(), check=True, capture_output=True)
    return directory


def find_initdb():
    found = os.path.realpath(shutil.which("postgres") or "/nowhere")
    beside = os.path.join(os.path.dirname(found), "initdb")  # noqa: PTH118, PTH120 - short
    return beside if os.path.exists(beside) else shutil.which("initdb")  # noqa: PTH110


def as_postgres():
    """PostgreSQL refuses to run as root."""
    return {"user": "postgres", "cwd": "/"} if os.getuid() == 0 else {}


@pytest.fixture(scope="session")
def postgres(postgres_directory):
    """A way to connect to a server of its own, over a socket in its directory."""
    import psycopg

    place = str(postgres_directory)
    binary = os.path.realpath(shutil.which("postgres"))
    listen = ["-k", place, "-c", "listen_addresses=", "-c", "fsync=off"]
    command = [binary, "-D", f"{place}/data", *listen]
    process = subprocess.Popen(
        command, **as_postgres(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def connect():
        return psycopg.connect(host=place, user="spillover", dbname="postgres")

    def is_there():
        with suppress(psycopg.OperationalError), closing(connect()):
            return True

    try:
        until(is_there, every_s=0.05)
        yield connect
    finally:
        process.terminate()
        process.wait(20.0)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.processes)])
def connect(request):
    """With the sink's table and a table `things`, both empty."""
    connect = request.getfixturevalue(request.param)
    with closing(connect()) as connection:
        SqlSink(connection, "s").create_table()
        SqlSink(connection, "s").create_table()
        cursor = connection.cursor()
        cursor.execute("create table if not exists things (name text)")
        cursor.execute("delete from things")
        cursor.execute("delete from spillover_fence")
        connection.commit()
    return connect


@contextmanager
def sink_of(connect):
    with closing(connect()) as connection:
        yield SqlSink(connection, "s")


def things(connect):
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("select name from things order by name")
        return [name for (name,) in cursor.fetchall()]


def add(sink, lease, name, **more):
    with sink.transaction(lease, **more) as cursor:
        cursor.execute(f"insert into things values ('{name}')")  # noqa: S608 - both placeholders


@pytest.mark.processes
def test_a_transaction_holds_with_its_checkpoint(connect):
    with sink_of(connect) as sink:
        assert sink.claim(Held(5)) is None
        add(sink, Held(5), "a", checkpoint="1")
        add(sink, Held(5), "b")
        assert sink.claim(Held(6)) == "1"
        assert sink.claim(Held(1, partition=1)) is None
    assert things(connect) == ["a", "b"]


def test_an_older_epoch_changes_no_table(connect):
    with sink_of(connect) as late, sink_of(connect) as new:
        late.claim(Held(5))
        add(new, Held(6), "new", checkpoint="2")
        for attempt in (
            lambda: add(late, Held(5), "late", checkpoint="9"),
            lambda: late.claim(Held(5)),
            lambda: late.transaction(Held(5)).__enter__().execute("delete from things"),
        ):
            with pytest.raises(Fenced, match="epoch 6"):
                attempt()
        assert new.claim(Held(6)) == "2"
    assert things(connect) == ["new"]


def test_a_lease_that_runs_out_within_a_transaction_undoes_it(connect):
    lease = Held(5)
    with sink_of(connect) as sink:
        with suppress(Fenced):
            with sink.transaction(lease, checkpoint="1") as cursor:
                cursor.execute("insert into things values ('late')")
                lease.checks_left = 0
            pytest.fail("it was committed")
        assert sink.claim(Held(5)) is None
        with suppress(ZeroDivisionError), sink.transaction(Held(5)) as cursor:
            cursor.execute("insert into things values ('broken')")
            raise ZeroDivisionError
        add(sink, Held(5), "fine")
    assert things(connect) == ["fine"]


def test_a_later_epoch_waits_for_what_is_under_way(connect):
    """And then finds all of it: nothing of the older one comes after the claim."""
    seen = []

    def claim():
        with sink_of(connect) as new:
            seen.append(new.claim(Held(6)))

    with sink_of(connect) as old:
        claiming = threading.Thread(target=claim)
        with old.transaction(Held(5), checkpoint="done") as cursor:
            cursor.execute("insert into things values ('old')")
            claiming.start()
            claiming.join(0.2)
            assert not seen
        claiming.join(20.0)
        assert seen == ["done"]
        with pytest.raises(Fenced):
            add(old, Held(5), "late")
    assert things(connect) == ["old"]


def test_a_connection_that_commits_by_itself_is_refused(sqlite):
    with closing(sqlite()) as connection:
        connection.isolation_level = None
        with pytest.raises(InputError, match="without autocommit"):
            SqlSink(connection, "s")
        connection.isolation_level = ""
        with pytest.raises(InputError, match="paramstyle"):
            SqlSink(connection, "s", paramstyle="named")


@pytest.mark.processes
def test_autocommit_of_postgresql_is_refused(postgres):
    with closing(postgres()) as connection:
        connection.autocommit = True
        with pytest.raises(InputError, match="without autocommit"):
            SqlSink(connection, "s")


# --- HTTP -------------------------------------------------------------------------------------


def test_headers_say_who_writes_and_the_server_knows_the_latest():
    gate, kept = EpochGate(8), []
    headers = epoch_headers(Held(10, partition=3))
    assert headers == {"Spillover-Partition": "3", "Spillover-Epoch": "10"}
    assert gate.judge(headers).admitted
    assert gate.judge({name.lower(): text for name, text in headers.items()}).admitted
    assert gate.judge(epoch_headers(Held(11, partition=3))).admitted
    assert gate.judge(epoch_headers(Held(1, partition=4))).admitted
    stale = gate.judge(headers)
    assert (stale.status, stale.admitted) == (412, False)
    with pytest.raises(Fenced, match="epoch 11"):
        raise_if_fenced(Held(10, partition=3), stale.status, stale.headers)
    raise_if_fenced(Held(10), 200, {})
    raise_if_fenced(Held(10, partition=3), 200, stale.headers)  # it may tell that with any answer
    for latest in ({}, {"Spillover-Epoch": "soon"}, {"Spillover-Epoch": "\u00b2"}):
        raise_if_fenced(Held(10), 412, latest)  # of another precondition
    with pytest.raises(Fenced):
        epoch_headers(over(10))
    again = EpochGate(8, {3: 11}, lambda *pair: kept.append(pair))
    assert not again.judge(headers).admitted
    assert again.judge(epoch_headers(Held(12, partition=3))).admitted
    assert kept == [(3, 12)]


def test_an_epoch_that_could_not_be_stored_is_not_let_in_by_a_retry():
    """The server would forget it with its next start, and let the older one in again."""
    kept, fails = [], True

    def keep(*pair):
        if fails:
            raise OSError("disk full")
        kept.append(pair)

    gate = EpochGate(8, {3: 9}, keep)
    for _ in range(2):
        with pytest.raises(OSError, match="disk full"):
            gate.judge(epoch_headers(Held(10, partition=3)))
        assert gate.judge(epoch_headers(Held(9, partition=3))).admitted
    fails = False
    assert gate.judge(epoch_headers(Held(10, partition=3))).admitted
    assert kept == [(3, 10)]
    assert gate.judge(epoch_headers(Held(10, partition=3))).admitted
    assert kept == [(3, 10)]
    assert gate.judge(epoch_headers(Held(9, partition=3))).status == 412


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Spillover-Epoch": "1"},
        {"Spillover-Partition": "0", "Spillover-Epoch": "x"},
        {"Spillover-Partition": "0", "Spillover-Epoch": "-1"},
        {"Spillover-Partition": "0", "Spillover-Epoch": "9" * 30},
        {"Spillover-Partition": "0", "Spillover-Epoch": "٣"},
        {"Spillover-Partition": "8", "Spillover-Epoch": "1"},
    ],
)
def test_headers_that_are_none_are_refused(headers):
    assert EpochGate(8).judge(headers).status == 400
