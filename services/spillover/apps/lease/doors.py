"""The doors of a lease member, where it has API tokens (`apps.http.doors`): those that all services
have, and no others."""

from __future__ import annotations

from spillover.apps.http.doors import DOORS_OF_ALL, DoorTable

TABLE = DoorTable(DOORS_OF_ALL)
