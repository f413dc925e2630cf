"""The variable that tells clients which CAs to believe; `live.tls` uses them."""

from __future__ import annotations

CA_VARIABLE = "SPILLOVER_CA_FILE"
"""The variable of the environment with a file of the CAs that count where a url is https, in place
of the system's. It belongs to a machine, as the file does, and not to a topology, which is the same
on all of them."""
