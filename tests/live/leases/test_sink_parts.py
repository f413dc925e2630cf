"""What sinks take for granted, without a server: what a connection is like, how its library marks
parameters, and what numbers of headers may be."""

import sqlite3

import pytest

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.sinks.http_sink import EpochGate, epoch_headers, raise_if_fenced
from spillover.live.leases.sinks.redis_sink import RedisSink
from spillover.live.leases.sinks.sql_sink import SqlSink
from spillover.model.errors import InputError


class Held:
    """A lease, and how often it was looked at."""

    def __init__(self, partition=3, epoch=7):
        self.partition, self.epoch, self.checks = partition, epoch, 0

    def check(self):
        self.checks += 1


# --- SQL --------------------------------------------------------------------------------------


def connection_of(library, **attributes):
    kind = type("Connection", (), {"__module__": library, **attributes})
    return kind()


@pytest.mark.parametrize(
    ("library", "attributes", "is_refused"),
    [
        ("sqlite3", {"isolation_level": None}, True),
        ("sqlite3", {"isolation_level": None, "autocommit": -1}, True),
        ("sqlite3", {"isolation_level": None, "autocommit": False}, False),
        ("sqlite3", {"isolation_level": "", "autocommit": True}, True),
        ("sqlite3", {"isolation_level": "", "autocommit": -1}, False),
        ("sqlite3", {"isolation_level": ""}, False),
        ("sqlite3", {}, False),
        ("of_a_test.inner", {"isolation_level": None, "autocommit": False}, False),
        ("of_a_test.inner", {"isolation_level": None}, False),
        ("of_a_test", {"autocommit": True}, True),
    ],
)
def test_what_commits_by_itself_is_no_connection_of_a_sink(library, attributes, is_refused):
    """SQLite's says it by having no isolation level, others by a flag, its later one by both."""
    connection = connection_of(library, **attributes)
    if is_refused:
        with pytest.raises(InputError, match="connection: expected one without autocommit"):
            SqlSink(connection, "orders", paramstyle="qmark")
    else:
        SqlSink(connection, "orders", paramstyle="qmark")


class Closing(sqlite3.Connection):
    """Counts cursors that are open."""

    open = 0

    def cursor(self, *_):
        self.open += 1
        connection = self

        class Cursor(sqlite3.Cursor):
            def close(self):
                connection.open -= 1
                super().close()

        return super().cursor(Cursor)


def test_a_transaction_ends_as_it_should_and_leaves_no_cursor():
    connection, lease = sqlite3.connect(":memory:", factory=Closing), Held()
    sink = SqlSink(connection, "orders", paramstyle="qmark")
    sink.create_table()
    assert (connection.open, connection.in_transaction) == (0, False)
    assert sink.claim(lease) is None
    assert lease.checks == 2, "before anything, and before the commit"
    with sink.transaction(lease, checkpoint="42") as cursor:
        cursor.execute("create table orders (id integer)")
        assert connection.in_transaction
    assert (connection.open, connection.in_transaction) == (0, False)

    def fail():
        with sink.transaction(lease, checkpoint="43") as cursor:
            cursor.execute("insert into orders values (1)")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (connection.open, connection.in_transaction) == (0, False)
    assert connection.execute("select count(*) from orders").fetchone() == (0,)
    assert sink.claim(Held(epoch=8)) == "42"
    with pytest.raises(Fenced, match="partition 3, epoch 7: the sink has seen epoch 8"):
        sink.claim(lease)
    assert (connection.open, connection.in_transaction) == (0, False)
    assert sink.claim(Held(partition=4)) is None
    assert SqlSink(connection, "others", paramstyle="qmark").claim(Held()) is None
    connection.close()


# --- Redis ------------------------------------------------------------------------------------


class Answers:
    """A client of the library that answers as it is told, and notes what it was sent."""

    def __init__(self, *answers):
        self.sent = []
        self._answers = list(answers)

    def execute_command(self, *words):
        self.sent.append(words)
        return self._answers.pop(0)


@pytest.mark.parametrize("words", ["GET k", b"GET k", (), ("PING",), ("SET", "k", *"x" * 6_999)])
def test_what_is_no_command_is_refused_before_anything_is_sent(words):
    """A text, no key, more words than Lua passes on: 7000 are the most."""
    client, longest = Answers([1, "", [1]]), ("SET", "k", *"x" * 6_998)
    sink = RedisSink(client, "orders")
    with pytest.raises(InputError, match="Redis sink: commands: expected sequences of 2 to 7000"):
        sink.apply(Held(), longest, words)
    assert client.sent == []
    assert sink.apply(Held(), longest) == [1]


# --- HTTP -------------------------------------------------------------------------------------


def test_an_epoch_is_a_number_of_at_most_nineteen_digits():
    """As many as 64 bits have, and none that would take long to read."""
    longest = {"Spillover-Partition": "0", "Spillover-Epoch": "9" * 19}
    assert EpochGate(1).judge(longest).admitted
    refused = EpochGate(1).judge(longest | {"Spillover-Epoch": "9" * 50})
    assert (refused.status, refused.headers, refused.admitted) == (400, {}, False)
    assert refused.problem == f"Spillover-Epoch: expected a number, got {'9' * 40!r}"
    assert EpochGate(1).judge(longest | {"Spillover-Epoch": "9" * 20}).status == 400


@pytest.mark.parametrize(
    ("status", "headers", "is_fenced"),
    [
        (412, {"Spillover-Epoch": "9"}, True),
        (412, {"spillover-epoch": "9"}, True),
        (412, {"spillover-epoch": "²"}, False),
        (412, {"etag": "9"}, False),
        (409, {"Spillover-Epoch": "9"}, False),
    ],
)
def test_a_caller_is_fenced_by_what_only_a_gate_answers(status, headers, is_fenced):
    lease = Held()
    assert epoch_headers(lease) == {"Spillover-Partition": "3", "Spillover-Epoch": "7"}
    assert lease.checks == 1
    if is_fenced:
        with pytest.raises(Fenced, match="partition 3, epoch 7: the sink has seen epoch 9"):
            raise_if_fenced(lease, status, headers)
    else:
        raise_if_fenced(lease, status, headers)
