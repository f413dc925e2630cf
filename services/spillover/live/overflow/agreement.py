"""The agreement of neighbors: what their topologies say of what they share, and what either has
said of the other.

A node that asks a neighbor for reports says which cluster it is and which one it means to ask
(`identity`), and its terms. The neighbor compares, with one of two results:

* It was not meant, or is of another federation, or has no link to the node that asks, or the two
  speak no version of the protocol in common. It refuses, and says who it is; neither reports nor
  requests go that way. This happens where a node has died and another one took its port.
* The terms differ (the link's delay, the time scale, the hop budget): work goes on, and both say
  so.

What a node does not tell, since it is older or its topology has no name, is not compared. A
federation is what its file calls it; a file without a name is of any federation.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from urllib.parse import quote, unquote, urlencode

from spillover.live.overflow import protocol
from spillover.live.overflow.configured import FIELD, HEADER, Configured
from spillover.live.overflow.wire import Caller, MalformedMessage
from spillover.live.process.logs import Message
from spillover.model.topology import NODES_MAX

NAME_LENGTH_MAX = 200
"""The most characters of a federation's name that are sent and compared."""

TOLD_MAX, TOLD_WITHIN_S = 10, 60.0
"""The most changes of one neighbor that are logged within TOLD_WITHIN_S seconds: any caller can
claim to be a neighbor, each time another one."""

NODE = "node"
"""The field of a question for reports with the number of the node or process that asks."""

ONE_OR_TWO_DIGITS = re.compile("[0-9]{1,2}")

CLUSTER_HEADER = b"spillover-cluster"
FEDERATION_HEADER = b"spillover-federation"
"""The header of an answer that turns a neighbor away: the federation that it has come to."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms that both ends of a link should have alike. A term that was not sent is None."""

    delay_ms: float | None = None
    gossip_period_ms: float | None = None
    default_deadline_ms: float | None = None
    max_hops: float | None = None

    @classmethod
    def read(cls, query: Mapping[str, Sequence[str]]) -> Terms:
        """Returns the terms in the query of a question for reports. Raises MalformedMessage."""
        return cls(**{one.name: _number(one.name, query) for one in fields(cls)})

    def differences(self, there: Terms) -> str | None:
        """Returns the differences in words, from this side's view; None if there are none."""
        found = []
        for name, (words, unit) in _WORDS.items():
            own, other = getattr(self, name), getattr(there, name)
            if own is None or other is None or math.isclose(own, other, rel_tol=1e-9):
                continue
            found.append(f"{words}: {own:g}{unit} here, {other:g}{unit} there")
        return "; ".join(found) or None


_WORDS = {
    "delay_ms": ("link delay", " ms"),
    "gossip_period_ms": ("gossip period", " ms"),
    "default_deadline_ms": ("default deadline", " ms"),
    "max_hops": ("hop budget", ""),
}


class Agreement:
    """The agreement with one neighbor: what it and this node disagree about, as far as either has
    said.

    Each change is put in the log once. `configured` is what this node says of its configuration;
    `node` is its number, or that of the process.
    """

    def __init__(
        self, caller: Caller, terms: Terms, configured: Configured | None = None, node: int = 1
    ) -> None:
        self._node = node
        self.caller = caller
        """The name by which this node calls the neighbor."""
        self.configured = Configured() if configured is None else configured
        self._terms = terms
        self._there = Terms()
        self._of_terms: str | None = None
        self._of_identity: str | None = None
        self._said: str | None = None
        self._told_s = deque([-math.inf] * TOLD_MAX, maxlen=TOLD_MAX)

    @property
    def disagreement(self) -> str | None:
        """Returns the disagreement in words, in one line; None if none is known."""
        return "; ".join(filter(None, (self._of_identity, self._of_terms))) or None

    @property
    def is_turned_away(self) -> bool:
        """Returns whether the server at the neighbor's address wants nothing of this node."""
        return self._of_identity is not None

    def query(self) -> str:
        """Returns what this node says of itself when it asks for reports."""
        told: dict[str, object] = {
            one.name: getattr(self._terms, one.name) for one in fields(self._terms)
        }
        told[FIELD] = self.configured.told
        told[NODE] = self._node if self._node > 1 else None
        given = {name: value for name, value in told.items() if value is not None}
        return urlencode(given, quote_via=quote)

    def asked(self, there: Terms, configuration: str = "") -> None:
        """Compare the terms with which the neighbor asks for reports. Terms of another
        configuration are not compared, since one of the two will go by the other's in a moment."""
        if configuration not in ("", self.configured.told):
            there = Terms()
        self._there = there if not configuration else Terms()
        self._of_terms = self._terms.differences(there)
        self._tell()

    def go_by(self, terms: Terms) -> None:
        """Go by a changed configuration. The neighbor has changed to it too, or will in a moment,
        so that its old terms are void. They hold if the neighbor knows of no configurations."""
        self._terms = terms
        self._of_terms = terms.differences(self._there)
        self._tell()

    def heard(self) -> None:
        """Note that the neighbor reports: it is the one that was meant."""
        self._of_identity = None
        self._tell()

    def turned_away(self, headers: Mapping[bytes, bytes]) -> None:
        """Note that the server at the neighbor's address refused to report, with these headers."""
        cluster = headers.get(CLUSTER_HEADER, b"").decode("latin-1")[:NAME_LENGTH_MAX]
        name = headers.get(FEDERATION_HEADER, b"").decode("latin-1")
        federation = shortened(unquote(name)) or None
        if cluster and cluster != self.caller.to:
            of = "" if federation is None else f" of federation {federation!r}"
            self._of_identity = f"at its address is cluster {cluster!r}{of}"
        elif federation is not None and federation != self.caller.federation:
            names = f"{self.caller.federation!r} here, {federation!r} there"
            self._of_identity = f"federation: {names}"
        elif cluster:
            self._of_identity = "link: one here, none there"
        else:  # of an older version, or no node at all
            self._of_identity = "what is at its address does not know this cluster"
        if federation is None or federation == (self.caller.federation or federation):
            told = headers.get(HEADER, b"").decode("latin-1")
            self.configured.heard(cluster or self.caller.to or "", told)
        self._tell()

    def refused_version(self, headers: Mapping[bytes, bytes]) -> None:
        """Note that the server at the neighbor's address speaks other versions of the protocol."""
        there = protocol.read_versions(headers.get(protocol.TOLD, b"").decode("latin-1"))
        self._of_identity = protocol.difference(there)
        self._tell()

    def unanswered(self) -> None:
        """Note that nobody is at the neighbor's address now, so that nobody disagrees."""
        self._of_identity = None

    def _tell(self) -> None:
        now = self.disagreement
        now_s = time.monotonic()
        if now == self._said or now_s < self._told_s[0] + TOLD_WITHIN_S:
            return
        self._said = now
        self._told_s.append(now_s)
        neighbor = self.caller.to
        if now is None:
            _log.info(Message("neighbor agrees again", neighbor=neighbor))
        else:
            _log.warning(Message("neighbor disagrees", neighbor=neighbor, disagreement=now))


def shortened(name: str) -> str:
    """Returns a name, cut to the length in which it is sent."""
    return name[:NAME_LENGTH_MAX]


def node_asking(query: Mapping[str, Sequence[str]]) -> int:
    """Returns the number of the node or process that asks for reports, which is the first one where
    the query does not say it. Raises MalformedMessage."""
    told = query.get(NODE, ["1"])[0]
    number = int(told) if ONE_OR_TWO_DIGITS.fullmatch(told) else 0
    if not 1 <= number <= NODES_MAX:
        raise MalformedMessage(f"{NODE}: expected a whole number from 1 to {NODES_MAX}")
    return number


def _number(name: str, query: Mapping[str, Sequence[str]]) -> float | None:
    given = query.get(name)
    if not given:
        return None
    try:
        number = float(given[0][:32])
    except ValueError:
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise MalformedMessage(f"{name}: expected a number, 0 or more")
    return number
