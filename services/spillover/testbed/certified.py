"""The certificates of a testbed's nodes: made where a node needs one, shown by it, and believed by
whoever asks the nodes. How they are made is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from spillover.live.tls.contexts import trusting_context
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology
from spillover.testbed.asking import Asking

DIRECTORY = "certificates"
CA_FILE = "ca.crt"
VARIABLES = {
    "tls.crt": "SPILLOVER_TLS_CERT",
    "tls.key": "SPILLOVER_TLS_KEY",
    CA_FILE: "SPILLOVER_TLS_CA",
}
"""Where `spillover node` looks for the files of its certificate."""

Certify: TypeAlias = Callable[[Path, Topology, ClusterId], Path]
"""Makes certificates in a directory, where there are none yet, and returns that of a cluster's."""


class Certified:
    """The certificates of one testbed; without `certify` there are none, and all is http."""

    def __init__(self, certify: Certify | None) -> None:
        self._certify = certify
        self._directory = Path()

    @property
    def is_wanted(self) -> bool:
        return self._certify is not None

    @property
    def ca_file(self) -> Path | None:
        """Returns the CAs that vouch for the nodes."""
        return self._directory / CA_FILE if self.is_wanted else None

    def keep_in(self, directory: Path) -> None:
        """Make them there, from now on."""
        self._directory = directory / DIRECTORY

    def environment(self, topology: Topology, cluster: ClusterId) -> dict[str, str]:
        """Returns the environment of a cluster's node, which has a certificate then. Those that
        this process was told of are not the node's."""
        rest = {name: told for name, told in os.environ.items() if name not in VARIABLES.values()}
        if self._certify is None:
            return rest
        own = self._certify(self._directory, topology, cluster)
        return {**rest, **{variable: str(own / name) for name, variable in VARIABLES.items()}}

    def asking(self, shown: dict[str, str]) -> Asking:
        """Returns what asks the nodes, with these headers."""
        return Asking(shown, trusting_context(str(self.ca_file)) if self.is_wanted else None)
