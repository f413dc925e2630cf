"""The answer to a balancer that asks, at the door of a service, whether to send requests. All other
requests at that door are for the service."""

from __future__ import annotations

from spillover.apps.node.answers import why_not_ready
from spillover.apps.node.door_problems import ClientLine, write_problem
from spillover.live.http1.written import STATUS_LINE, answer_head
from spillover.live.overflow.shell import NodeShell

_ALLOW = b"allow: GET, HEAD, OPTIONS\r\n"


class Checked(Exception):
    """The request is a balancer's question."""


def tell_ready(line: ClientLine, shell: NodeShell) -> None:
    """Answer as `/readyz` does, and close the connection."""
    problem = why_not_ready(shell)
    if problem is not None:
        write_problem(line, problem, "OPTIONS", None, keep_alive=False)
    else:
        line.write(answer_head(STATUS_LINE[200], _ALLOW, 0, keep_alive=False, is_old=False))
        line.answered(keep_alive=False)
