"""The doors of a producer, and who may go through, where it has API tokens (`apps.http.doors`).

Objects have no tenants: who may submit may put, take and settle. Producers show each other an API
token too. Whoever has one might as well call `/take`. Where they have certificates, what is said
between them wants one of a peer besides (`QueueCalls`).
"""

from __future__ import annotations

from collections.abc import Mapping

from spillover.apps.http.doors import DOORS_OF_ALL, DoorTable, Need
from spillover.live.queue.wire import OFFER_PATH, PROBE_PATH
from spillover.model.access import Role

DOORS: Mapping[str, Mapping[str, Need]] = {
    **DOORS_OF_ALL,
    "/objects": {"POST": Role.SUBMIT},
    "/objects/{grant}": {"GET": Role.SUBMIT},
    "/take": {"POST": Role.SUBMIT},
    "/grants/{call}": {"POST": Role.SUBMIT},
    PROBE_PATH: {"POST": Role.SUBMIT},
    OFFER_PATH: {"POST": Role.SUBMIT},
    "/explain/{name}": {"GET": Role.READ},
    "/admin/resume": {"POST": Role.OPERATE},
    "/dead": {"GET": Role.READ},
    # An object is more than what happens here: who looks does not see it.
    "/dead/{number}": {"GET": Role.OPERATE, "POST": Role.OPERATE, "DELETE": Role.OPERATE},
}

TABLE = DoorTable(DOORS)
