"""The forms of values in a topology file (docs/configuration.md), where types do not say them.

The fields themselves, their limits and how they fit together are in `spillover.model.topology`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator

from spillover.inputs.schema import ID, IDS, PRINTABLE, Forms, fault
from spillover.inputs.yaml_file import describe
from spillover.model.addresses import is_plain_url
from spillover.model.dask_target import dask_target, is_dask_handler
from spillover.model.nearest import did_you_mean
from spillover.model.routes import Route
from spillover.model.topology import HANDLERS_KNOWN, Cluster, ClusterNode, Link, Topology
from spillover.model.unlike_servers import JobType, Server, ServerClass
from spillover.model.upstream_urls import (
    is_http_handler,
    is_proxy_handler,
    passed_to,
    upstream_urls,
)
from spillover.model.work_source import BYTES, COUNTED, EXPECTED, WorkSource
from spillover.policy.overflow.choosers import POLICY_NAMES

HANDLER_KINDS = ("sleep", "spin", "python", "http", "proxy", "dask")

_HANDLERS_READ: tuple[tuple[Callable[[str], bool], Callable[[str], object]], ...] = (
    (is_http_handler, upstream_urls),
    (is_proxy_handler, passed_to),
    (is_dask_handler, dask_target),
)

_PYTHON_HANDLER = re.compile(r"python:[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _check_policy(value: str) -> str:
    if value not in POLICY_NAMES:
        hint = did_you_mean(value, POLICY_NAMES)
        raise fault(f"expected one of {', '.join(POLICY_NAMES)}, got {value!r}{hint}")
    return value


def _check_handler(value: str) -> str:
    for is_such, read in _HANDLERS_READ:
        if not is_such(value):
            continue
        try:
            read(value)
        except ValueError as error:
            raise fault(str(error)) from error
        return value
    if value not in ("sleep", "spin") and not _PYTHON_HANDLER.fullmatch(value):
        kind = value.partition(":")[0]
        hint = "" if kind in HANDLER_KINDS else did_you_mean(kind, HANDLER_KINDS)
        raise fault(f"expected {HANDLERS_KNOWN}, got {describe(value)}{hint}")
    return value


def _check_url(value: str) -> str:
    if not is_plain_url(value):
        raise fault(f"expected http(s)://HOST[:PORT], got {describe(value)}")
    return value


def _check_between(value: tuple[str, ...]) -> tuple[str, ...]:
    if len(value) != 2:
        raise fault(f"expected two cluster ids, got {len(value)}")
    return value


def _work_of(value: object) -> WorkSource | None:
    if value is None or (value == COUNTED and not isinstance(value, bool)):
        return None
    told = {BYTES: True} if value == BYTES else value
    if isinstance(told, dict) and told.keys() <= _OF_WORK:
        texts = [one for name, one in told.items() if name not in _FLAGS]
        flags = [told.get(name, True) is True for name in _FLAGS]
        if all(flags) and all(isinstance(one, str) for one in texts):
            source = WorkSource(**told)
            if source.fault() is None:
                return source
    raise fault(f"{EXPECTED}, got {describe(value)}")


def _work_of_route(value: object) -> WorkSource | None:
    if value == COUNTED and not isinstance(value, bool):
        return WorkSource(counted=True)
    return _work_of(value)


_FLAGS = (BYTES, "counted")
_OF_WORK = {field.name for field in fields(WorkSource)}
_WORK = Annotated[Any, AfterValidator(_work_of)]
_POLICY = Annotated[str, AfterValidator(_check_policy)]
_HANDLER = Annotated[str, AfterValidator(_check_handler)]
_URL = Annotated[str, AfterValidator(_check_url)] | None

FORMS: Forms = {
    (Topology, "name"): PRINTABLE,
    (Topology, "policy"): _POLICY,
    (Topology, "shadow"): _POLICY | None,
    (Cluster, "handler"): _HANDLER,
    (Cluster, "work"): _WORK,
    (Route, "work"): Annotated[Any, AfterValidator(_work_of_route)],
    (Cluster, "url"): _URL,
    (Cluster, "peer_url"): _URL,
    (Cluster, "proxy_url"): _URL,
    (ClusterNode, "url"): Annotated[str, AfterValidator(_check_url)],
    (ClusterNode, "peer_url"): _URL,
    (ClusterNode, "proxy_url"): _URL,
    (Server, "id"): ID,
    (Server, "handler"): _HANDLER | None,
    (ServerClass, "id"): ID,
    (ServerClass, "servers"): IDS,
    (JobType, "id"): ID,
    (JobType, "classes"): IDS,
    (Link, "between"): Annotated[IDS, AfterValidator(_check_between)],
}
