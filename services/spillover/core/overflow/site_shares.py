"""The share of one node in the servers of its site, by class, and what becomes of it in views.

Theory of operation (decision 0049). In a view shares change only as servers are given from one node
to another. Each new view counts them: every node tells its *part*, and the node that makes the view
trims what is too much, and divides what is missing or keeps it as *spare* for a while.

Not here: which nodes are in a view (`views`), and to whom servers are given (`siblings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from spillover.core.overflow.sibling import Layout
from spillover.core.overflow.sibling_messages import (
    NO_VIEW,
    Frozen,
    Give,
    Installed,
    Limits,
    is_later,
)
from spillover.policy.overflow.siblings import spread, trimmed

ALIKE = ((0,),)
"""The lines where servers are alike: one, for the one class."""

FORM_ALIKE = "1.1"
"""The form of a site whose servers are alike (`SiteShares.form`)."""


class Part(NamedTuple):
    """The share of one node in a view, as it is told."""

    share: int
    share_of: tuple[int, ...] = ()
    limits: Limits | None = None


class ClassShare:
    """The share of this node in the tokens of one class. Servers that are alike are one class."""

    def __init__(self, servers: int, lines: tuple[int, ...]) -> None:
        self.servers = servers
        """The number of tokens that the site has."""
        self.servers_most = servers
        """The largest number that the site has had."""
        self.lines = lines
        """The lines that may use these tokens."""
        self.share = 0
        self.spare = 0
        """The number of tokens that no node of the view has; 0 except at the node that has made
        it."""
        self.early = 0
        """The number of tokens that were given in the view that is being made."""
        self.idle = 0
        """The number of idle tokens at the siblings with which this node shares."""

    def use(self, servers: int) -> None:
        """The site has so many tokens from now on."""
        self.servers, self.servers_most = servers, max(servers, self.servers_most)

    def believed(self, share: int, nodes: int) -> int:
        """Returns the part of a share that is believed, whatever a sibling tells. The shares of
        nodes that were cut off from each other may add up to more than `servers`, and siblings may
        go by another number."""
        return min(share, self.servers * nodes)


class SiteShares:
    """The share of one node of a site which has so many servers, or the tokens of a layout where
    these are unlike."""

    def __init__(self, servers: int, layout: Layout | None = None) -> None:
        names, tokens, lines = ((), (servers,), ALIKE) if layout is None else layout
        self.is_alike = layout is None
        self.form = f"{len(tokens)}.{len(lines)}"
        """The classes and lines in brief, which are the same at all nodes."""
        if not self.is_alike:
            self.form += f".{crc32(repr((names, lines)).encode()):08x}"
        self.lines = lines
        self.classes = [
            ClassShare(count, tuple(line for line, of in enumerate(lines) if kind in of))
            for kind, count in enumerate(tokens)
        ]
        self.servers = sum(tokens)
        """The number of servers of the site, or of tokens of all classes."""
        self.share = 0
        """The number of those that this node has."""
        self.spare = 0
        """The number of those that no node of the view has; 0 except at the node that has made
        it."""
        self.limits: Limits | None = None
        """The word of operators on the tokens of the site; None while there is none."""

    @property
    def by_class(self) -> tuple[int, ...]:
        return tuple([each.share for each in self.classes])

    def use(self, servers: int) -> None:
        """The site has so many servers from now on, and they are alike."""
        self.servers = servers
        self.classes[0].use(servers)

    def go_by(self, limits: Limits | None) -> None:
        """Go by the word of operators, unless a later one is known."""
        own = NO_VIEW if self.limits is None else self.limits.at
        if limits is None or not is_later(limits.at, own):
            return
        self.limits = limits
        for each, tokens in zip(self.classes, limits.tokens, strict=True):
            each.use(tokens)
        self.servers = sum(limits.tokens)

    # --- in a view ----------------------------------------------------------------------------

    def have_all(self) -> None:
        """Have all servers, as there is no other node."""
        for each in self.classes:
            each.share = each.servers
        self._add_up()

    def give(self, servers: int, kind: int) -> None:
        """Have so many servers less, as they are given to a sibling."""
        self.classes[kind].share -= servers
        self.share -= servers

    def take(self, message: Give, nodes: int) -> None:
        each = self.classes[message.kind]
        each.share = each.believed(each.share + message.servers, nodes)
        self._add_up()

    def take_early(self, message: Give) -> None:
        """Have these servers once the view is installed in which they were given: the giver has
        installed it sooner."""
        self.classes[message.kind].early += message.servers

    # --- from one view to the next ------------------------------------------------------------

    def part(self, held_of: Sequence[int]) -> Part:
        """Returns the share of this node as it is told. What is held beyond it, as the site has
        fewer servers than before, counts: else it would be in use twice once there are more."""
        shares = self.by_class
        if held_of:
            shares = tuple(map(max, shares, held_of))
        return Part(sum(shares), () if self.is_alike else shares, self.limits)

    def forget_early(self) -> None:
        """Forget servers that were given in a view that is made no more."""
        for each in self.classes:
            each.early = 0

    def divide(self, answers: Sequence[Frozen], *, whole: bool) -> tuple[list[Part], list[int]]:
        """Returns the shares of the nodes that have answered so, and what is left of each class.
        Nothing is left where the servers that no node has can be divided, too (`whole`)."""
        for one in answers:
            self.go_by(one.limits)
        shares_of, left = [], []
        for kind, each in enumerate(self.classes):
            told = [one.share_of[kind] if one.share_of else one.share for one in answers]
            shares = trimmed([min(share, each.servers) for share in told], each.servers)
            spare = each.servers - sum(shares)
            if whole:
                # Classes begin at different nodes: few of them may have a token for each node.
                shares, spare = spread(shares, spare, first=kind), 0
            shares_of.append(shares)
            left.append(spare)
        parts = [
            Part(sum(share_of), () if self.is_alike else share_of, self.limits)
            for share_of in zip(*shares_of, strict=True)
        ]
        return parts, left

    def use_part(self, message: Installed, nodes: int) -> None:
        """Have the share that a view of so many nodes gives to this one."""
        self.go_by(message.limits)
        for each, share in zip(self.classes, message.share_of or (message.share,), strict=True):
            each.share = each.believed(share + each.early, nodes)
        self._add_up()

    def keep_spare(self, spare: Sequence[int]) -> None:
        """Keep the servers that no node has until they are handed out; none where it is empty."""
        for kind, each in enumerate(self.classes):
            each.spare = spare[kind] if spare else 0
        self._add_up()

    def hand_out(self) -> None:
        """Have the servers that no node has, as they are in use no more."""
        for each in self.classes:
            each.share += each.spare
            each.spare = 0
        self._add_up()

    def _add_up(self) -> None:
        self.share = sum([each.share for each in self.classes])
        self.spare = sum([each.spare for each in self.classes])

    def check(self, siblings: int) -> None:
        """Raise AssertionError if the state contradicts itself."""
        for each in self.classes:
            assert 0 <= each.share <= each.servers_most * (1 + siblings)
        assert self.share == sum(self.by_class)
