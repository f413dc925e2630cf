"""The fields of a topology file (contract section 2): their types, and what is wrong with a value.

Types and the form of single values are checked here; relations between the parts are checked by
`spillover.model.topology`. Files are read in `topology_file`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from spillover.model.dask_target import dask_target, is_dask_handler
from spillover.model.ids import ClusterId
from spillover.model.nearest import did_you_mean
from spillover.model.topology import HANDLERS_KNOWN, NOT_RUN_STATUSES, Cluster, Link, Topology
from spillover.model.upstream_urls import is_http_handler, upstream_urls
from spillover.policy.overflow.choosers import POLICY_NAMES

LATER_FIELDS = frozenset({"classes", "types", "on_block", "discipline"})
"""Fields of the contract that this version does not know yet."""

_EXACT_INTEGER_LIMIT = 2**53
"""Whole numbers up to here survive every JSON reader and every float."""

HANDLER_KINDS = ("sleep", "spin", "python", "http", "dask")

_PYTHON_HANDLER = re.compile(r"python:[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def fault(expected: str) -> PydanticCustomError:
    """Returns the error of a validator; `expected` is a whole message, braces and all."""
    return PydanticCustomError("expected", "{expected}", {"expected": expected})


def describe(value: object) -> str:
    """Returns a value as a message shows it: short, on one line, containers by their kind only."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list() | tuple() | set():
            return "a list"
        case int() if abs(value) > _EXACT_INTEGER_LIMIT:
            return "a very large number"
    shown = repr(value) if isinstance(value, str | int | float) else str(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _check_servers(value: object) -> object:
    if isinstance(value, list):
        raise fault("a list of unlike servers is not available in this version")
    return value


def _check_policy(value: str) -> str:
    if value == "adaptive":
        raise fault("the policy adaptive is not available in this version")
    if value not in POLICY_NAMES:
        hint = did_you_mean(value, POLICY_NAMES)
        raise fault(f"expected one of {', '.join(POLICY_NAMES)}, got {value!r}{hint}")
    return value


def _check_handler(value: str) -> str:
    if is_http_handler(value) or is_dask_handler(value):
        try:
            upstream_urls(value) if is_http_handler(value) else dask_target(value)
        except ValueError as error:
            raise fault(str(error)) from error
    elif value not in ("sleep", "spin") and not _PYTHON_HANDLER.fullmatch(value):
        kind = value.partition(":")[0]
        hint = "" if kind in HANDLER_KINDS else did_you_mean(kind, HANDLER_KINDS)
        raise fault(f"expected {HANDLERS_KNOWN}, got {describe(value)}{hint}")
    return value


def _check_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    plain = f"http://{host}" if port is None else f"http://{host}:{port}"
    # Comparing with the parts put together again refuses paths, users, queries and odd ports.
    if not parts.hostname or port == 0 or value.lower() != plain or re.search(r"\s", value):
        raise fault(f"expected http://HOST[:PORT], got {describe(value)}")
    return value


def _check_printable(value: str) -> str:
    if not value or not value.isprintable():
        raise fault(f"expected printable text, got {describe(value)}")
    return value


WholeNumber = Annotated[int, Field(ge=-_EXACT_INTEGER_LIMIT, le=_EXACT_INTEGER_LIMIT)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Fields(BaseModel):
    # Strict: no true for 1, no "5" for 5; whole numbers are welcome where floats are.
    model_config = ConfigDict(extra="forbid", strict=True)


class ClusterFields(_Fields):
    """One entry of `clusters`."""

    id: str
    servers: Annotated[WholeNumber, BeforeValidator(_check_servers)]
    service_ms: Number = 40.0
    handler: Annotated[str, AfterValidator(_check_handler)] = "sleep"
    workers: str = "thread"
    memory_limit_bytes: WholeNumber | None = None
    kill_after_ms: Number | None = None
    delivery_ms: Number = 0.0
    queue_limit: WholeNumber = 10_000
    held_limit_bytes: WholeNumber | None = None
    not_run_statuses: list[WholeNumber] = list(NOT_RUN_STATUSES)
    url: Annotated[str, AfterValidator(_check_url)] | None = None
    peer_url: Annotated[str, AfterValidator(_check_url)] | None = None


class LinkFields(_Fields):
    """One entry of `links`."""

    between: Annotated[list[str], Field(min_length=2, max_length=2)]
    delay_ms: Number = 0.0


class TopologyFields(_Fields):
    """The whole file."""

    name: Annotated[str, AfterValidator(_check_printable)]
    policy: Annotated[str, AfterValidator(_check_policy)] = "paper"
    gossip_period_ms: Number = 50.0
    max_hops: WholeNumber = 16
    default_deadline_ms: Number = 60_000.0
    payload_limit_bytes: WholeNumber = 1_048_576
    result_ttl_s: Number = 300.0
    result_limit: WholeNumber = 100_000
    clusters: list[ClusterFields]
    links: list[LinkFields] = []

    def to_topology(self) -> Topology:
        """Returns the values of the model; raises InputError when the parts do not fit together."""
        values: dict[str, Any] = dict(self)
        values["clusters"] = tuple(
            Cluster(
                **{
                    **dict(cluster),
                    "id": ClusterId(cluster.id),
                    "not_run_statuses": tuple(cluster.not_run_statuses),
                }
            )
            for cluster in self.clusters
        )
        values["links"] = tuple(
            Link(
                between=(ClusterId(link.between[0]), ClusterId(link.between[1])),
                delay_ms=link.delay_ms,
            )
            for link in self.links
        )
        return Topology(**values)
