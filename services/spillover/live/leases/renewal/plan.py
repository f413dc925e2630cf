"""The plan of the process that renews, as it goes over the pipe at its start: plain values only.
`settings` makes it from a group's settings.
"""

from __future__ import annotations


class RenewalPlan:
    """All of it, with the URL's password, which is why it is no argument of the command line."""

    def __init__(
        self,
        *,
        address: dict[str, object],
        keys: list[str],
        script: str,
        digest: str,
        arguments: list[str],
        era: str,
        partitions: int,
        period_s: float,
        lease_s: float,
        margin_s: float,
        timeout_s: float,
        max_progress_s: float | None,
    ) -> None:
        """`arguments`: of renew.lua, from the fresh era to the maximum lease. Renewals leave each
        `period_s` or a little earlier; a lease counts here for `lease_s` less `margin_s` from
        when the renewal was sent."""
        self.address = address
        self.keys = keys
        self.script = script
        self.digest = digest
        self.arguments = arguments
        self.era = era
        self.partitions = partitions
        self.period_s = period_s
        self.lease_s = lease_s
        self.margin_s = margin_s
        self.timeout_s = timeout_s
        self.max_progress_s = max_progress_s

    def as_dict(self) -> dict[str, object]:
        return vars(self)
