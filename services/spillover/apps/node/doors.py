"""The doors of a node, and who may go through: the one table of paths, verbs and roles.

It counts where a node has API tokens; elsewhere this table closes no door. A path that is not in it
is not let through: a new route without an entry fails a test, and does nothing. `apps.http.doors`
goes by the table, and certificates say who is a neighbor.
"""

from __future__ import annotations

from collections.abc import Mapping

from spillover.apps.http.doors import DOORS_OF_ALL, DoorTable, Need, Open
from spillover.live.membership.session_wire import SESSION
from spillover.live.overflow.protocol import PEER_PREFIX
from spillover.model.access import Role

DOORS: Mapping[str, Mapping[str, Need]] = {
    **DOORS_OF_ALL,
    "/requests": {"POST": Role.SUBMIT},
    "/requests/{request_id}": {"GET": Role.SUBMIT, "DELETE": Role.SUBMIT},
    SESSION: {"GET": Role.SUBMIT, "DELETE": Role.SUBMIT},
    "/federation": {"GET": Role.READ},
    "/explain/{request_id}": {"GET": Role.READ},
    "/admin/config": {"GET": Role.READ, "PUT": Role.OPERATE},
    "/admin/config/history": {"GET": Role.READ},
    "/admin/resume": {"POST": Role.OPERATE},
    "/admin/policy": {"PUT": Role.OPERATE},
    "/admin/tokens": {"PUT": Role.OPERATE},
    "/admin/links/{neighbor}": {"PUT": Role.OPERATE},
    PEER_PREFIX + "{call}": {"GET": Open.NEIGHBORS, "POST": Open.NEIGHBORS},
}

TABLE = DoorTable(DOORS)
