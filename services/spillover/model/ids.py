"""Names of things. A cluster id is what users write in topology files; a request id is the one
name a request has, wherever it is, with the tenant whose name it is. Nothing here makes ids: that
takes randomness.

Where there are no tenants, a request's id is its name. A tenant's requests have ids of their own,
so that whatever is kept or looked up by id is each tenant's own, and nothing in between needs to
know of tenants.
"""

from typing import NewType

ClusterId = NewType("ClusterId", str)
RequestId = NewType("RequestId", str)

_BETWEEN = "\0"
"""A separator that no name and no tenant contains."""


def request_id_of(tenant: str, name: str) -> RequestId:
    """Returns the id of the request that a tenant calls so."""
    return RequestId(f"{tenant}{_BETWEEN}{name}" if tenant else name)


def name_of(request_id: str) -> str:
    """Returns what its client calls it."""
    return request_id.rpartition(_BETWEEN)[2] if _BETWEEN in request_id else request_id


def tenant_of(request_id: str) -> str:
    """Returns whose it is; empty where there are no tenants."""
    return request_id.partition(_BETWEEN)[0] if _BETWEEN in request_id else ""


def parts_of(request_id: str) -> tuple[str, str]:
    """Returns whose it is, and what its client calls it."""
    tenant, _, name = request_id.rpartition(_BETWEEN)
    return tenant, name


def told_inside(request_id: str) -> str:
    """Returns what handlers and operators know it by, who see those of all tenants: TENANT/NAME, or
    the name alone."""
    return request_id.replace(_BETWEEN, "/", 1)
