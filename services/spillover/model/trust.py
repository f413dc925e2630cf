"""Where a client is told whom to believe. What it does with that is in `live.tls`."""

from __future__ import annotations

CA_VARIABLE = "SPILLOVER_CA_FILE"
"""Of the environment: a file of the CAs that count where a url is https, in place of the system's.
It is of a machine, as the file is, and not of a topology, which is the same on all of them."""
