"""The module that users import. For requests it has `Spillover`, and `AsyncSpillover` for code that
awaits; for partitions members of lease groups, the handle of a lease, fenced sinks, and streams as
partitions; for the distributed queue `consume` and `produce`.

Importing it loads neither redis-py nor a database driver nor a web framework: each is loaded when a
thing is made that needs it.
"""

from __future__ import annotations

from spillover.client.async_client import AsyncSpillover
from spillover.client.call import Stats
from spillover.client.job import AsyncJob, Job
from spillover.client.mapping import Progress
from spillover.client.nodes import Nodes
from spillover.client.retrying import Retries
from spillover.client.sync_client import Spillover
from spillover.client.wire import Answer, JobState
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.renewal.lease import Fenced, Lease, StopEvent, current_lease
from spillover.live.leases.sinks.http_sink import EpochGate, Verdict, epoch_headers, raise_if_fenced
from spillover.live.leases.sinks.redis_sink import AsyncRedisSink, RedisSink
from spillover.live.leases.sinks.sql_sink import SqlSink
from spillover.live.leases.streams.reader import AsyncStreamReader, StreamReader
from spillover.live.leases.streams.writer import AsyncStreamWriter, StreamWriter
from spillover.live.leases.thread import LeaseGroupThread
from spillover.live.queue.consuming import AsyncQueueObject, Consumer, QueueObject, consume
from spillover.live.queue.producing import AsyncQueue, Producer, Queue, produce
from spillover.model.errors import (
    Cancelled,
    Expired,
    Failed,
    GrantLost,
    InputError,
    NotANode,
    OutcomeUnknown,
    QueueFull,
    Refused,
    Rejected,
    RunError,
    SpilloverError,
    Unreachable,
)
from spillover.model.lease_times import LeaseTimes

__all__ = [
    "Answer",
    "AsyncJob",
    "AsyncQueue",
    "AsyncQueueObject",
    "AsyncRedisSink",
    "AsyncSpillover",
    "AsyncStreamReader",
    "AsyncStreamWriter",
    "Cancelled",
    "Consumer",
    "EpochGate",
    "Expired",
    "Failed",
    "Fenced",
    "GrantLost",
    "InputError",
    "Job",
    "JobState",
    "Lease",
    "LeaseGroup",
    "LeaseGroupThread",
    "LeaseTimes",
    "Nodes",
    "NotANode",
    "OutcomeUnknown",
    "Producer",
    "Progress",
    "Queue",
    "QueueFull",
    "QueueObject",
    "RedisSink",
    "Refused",
    "Rejected",
    "Retries",
    "RunError",
    "Spillover",
    "SpilloverError",
    "SqlSink",
    "Stats",
    "StopEvent",
    "StreamReader",
    "StreamWriter",
    "Unreachable",
    "Verdict",
    "consume",
    "current_lease",
    "epoch_headers",
    "produce",
    "raise_if_fenced",
]
