"""A fenced sink in SQL, for any DB-API 2 connection: what a handler writes and the fence's row are
one transaction. Tested with SQLite and PostgreSQL (psycopg); needs INSERT .. ON CONFLICT.

The table is `spillover_fence`: for each sink and partition the highest epoch seen and the last
checkpoint, see `TABLE`; `create_table` makes it, or a migration of yours does.

    sink = SqlSink(connection, "orders")
    start = sink.claim(lease)
    with sink.transaction(lease, checkpoint="42") as cursor:
        cursor.execute("delete from orders where id = 6")

The fence's row is locked from the first statement to the commit, so that a later epoch waits for
the transaction of an earlier one, and finds it complete or not there at all. One connection is for
one thread at a time, as in DB-API.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from spillover.live.leases.sinks.held import HeldPartition, fenced_by
from spillover.model.errors import InputError

TABLE = """
create table if not exists spillover_fence (
    sink varchar(200) not null,
    partition_number integer not null,
    epoch bigint not null,
    checkpoint text,
    primary key (sink, partition_number)
)
"""

_ENTER = """
insert into spillover_fence (sink, partition_number, epoch) values ({}, {}, {})
on conflict (sink, partition_number) do update set epoch = excluded.epoch
where spillover_fence.epoch <= excluded.epoch
"""
_READ = "select epoch, checkpoint from spillover_fence where sink = {} and partition_number = {}"
_CHECKPOINT = """
update spillover_fence set checkpoint = {} where sink = {} and partition_number = {} and epoch <= {}
"""

MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class Cursor(Protocol):
    """The part of a DB-API cursor that is used."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, statement: str, parameters: Any = ..., /) -> Any: ...

    def fetchone(self) -> Any: ...

    def close(self) -> Any: ...


class DatabaseConnection(Protocol):
    """The part of a DB-API connection that is used."""

    def cursor(self) -> Any: ...

    def commit(self) -> Any: ...

    def rollback(self) -> Any: ...


class SqlSink:
    """`name` tells sinks in one database apart. `paramstyle`, of DB-API: by default that of the
    connection's library. Raises InputError for a connection with autocommit: there the fence and
    what it protects would not be one transaction."""

    def __init__(
        self, connection: DatabaseConnection, name: str, *, paramstyle: str | None = None
    ) -> None:
        style = paramstyle or _paramstyle(connection)
        if style not in MARKS:
            raise InputError("SQL sink", "paramstyle", f"expected one of {', '.join(MARKS)}")
        if _commits_by_itself(connection):
            raise InputError("SQL sink", "connection", "expected one without autocommit")
        mark = MARKS[style]
        self._connection = connection
        self._name = name
        self._enter = _ENTER.format(mark, mark, mark)
        self._read = _READ.format(mark, mark)
        self._set = _CHECKPOINT.format(mark, mark, mark, mark)

    def create_table(self) -> None:
        """Create the table if it is not there."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(TABLE)
        finally:
            cursor.close()
        self._connection.commit()

    def claim(self, lease: HeldPartition) -> str | None:
        """Shut out all earlier epochs, and the checkpoint that they left; raises Fenced."""
        with self.transaction(lease) as cursor:
            cursor.execute(self._read, (self._name, lease.partition))
            checkpoint: str | None = cursor.fetchone()[1]
        return checkpoint

    @contextmanager
    def transaction(self, lease: HeldPartition, *, checkpoint: str | None = None) -> Iterator[Any]:
        """Gives a cursor for one transaction that holds only if the lease's epoch is the latest,
        and sets the checkpoint, if one is given. Committed at the end; rolled back if anything
        raises.

        Raises Fenced at the start, or at the end if the lease ran out meanwhile: either way nothing
        was done.
        """
        lease.check()
        cursor = self._connection.cursor()
        try:
            self._admit(cursor, lease)
            yield cursor
            if checkpoint is not None:
                given = (checkpoint, self._name, lease.partition, lease.epoch)
                cursor.execute(self._set, given)
            lease.check()
        except BaseException:
            self._connection.rollback()
            raise
        else:
            self._connection.commit()
        finally:
            cursor.close()

    def _admit(self, cursor: Cursor, lease: HeldPartition) -> None:
        """Enter the epoch, and lock the row."""
        cursor.execute(self._enter, (self._name, lease.partition, lease.epoch))
        if cursor.rowcount != 1:
            cursor.execute(self._read, (self._name, lease.partition))
            fenced_by(lease, cursor.fetchone()[0])


def _paramstyle(connection: DatabaseConnection) -> str:
    library = sys.modules.get(type(connection).__module__.partition(".")[0])
    return str(getattr(library, "paramstyle", "unknown"))


def _commits_by_itself(connection: DatabaseConnection) -> bool:
    """Returns whether it commits by itself, as the libraries say: `autocommit`, or no isolation
    level in sqlite3."""
    is_sqlite = type(connection).__module__.partition(".")[0] == "sqlite3"
    if is_sqlite and getattr(connection, "isolation_level", "") is None:
        return getattr(connection, "autocommit", True) is not False
    return getattr(connection, "autocommit", False) is True
