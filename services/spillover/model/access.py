"""Rights at a node: API tokens, their roles, and how much tenants may use at once.

An API token is what a client or an operator shows of itself. It is never called a token alone:
tokens are what classes of servers have. How a file of them is read is in `inputs.api_tokens`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

TENANT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
"""The form of the id of a tenant, and of the name of an API token, which stand in labels and audit
lines."""

TENANT_EXPECTED = "1 to 64 letters, digits, dots, dashes and underscores"


class Role(StrEnum):
    """The purpose of an API token. Operators may read, too."""

    SUBMIT = "submit"
    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Quota:
    """How much a tenant may use of its home at once; None is as much as there is."""

    max_queued: int | None = None
    max_running: int | None = None
    """The number of requests that have left the queue: they run here, or a neighbor has them."""
    requests_per_s: float | None = None
    max_sessions: int | None = None
    """The number of clients that follow the federation from here."""


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class ApiToken:
    """One API token, known by the SHA-256 of its secret: the secret is 256 random bits, so that
    nobody finds it from that."""

    name: str
    sha256: bytes
    tenant: str
    roles: frozenset[Role]
    quota: Quota = NO_QUOTA

    def may(self, role: Role) -> bool:
        """Returns whether it has this role, by itself or by a higher one."""
        return role in self.roles or (role is Role.READ and Role.OPERATE in self.roles)
