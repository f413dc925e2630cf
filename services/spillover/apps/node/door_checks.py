"""What a balancer is told that asks at the door of a service whether to send requests. All else
that comes to that door is for the service.
"""

from __future__ import annotations

from spillover.apps.node.answers import why_not_ready
from spillover.apps.node.door_problems import ClientLine, write_problem
from spillover.live.overflow.shell import NodeShell

_READY = (
    b"HTTP/1.1 200 OK\r\nallow: GET, HEAD, OPTIONS\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class Checked(Exception):
    """A request is a balancer's question."""


def tell_ready(line: ClientLine, shell: NodeShell) -> None:
    """Answer as `/readyz` does, and close the connection."""
    problem = why_not_ready(shell)
    if problem is not None:
        write_problem(line, problem, "OPTIONS", None, keep_alive=False)
    else:
        line.write(_READY)
        line.answered(keep_alive=False)
