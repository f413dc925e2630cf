"""The messages between the nodes of one site, in order and at most once while they hear each other
(`siblings`). The shell knows how they are written."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from spillover.model.ranges import WHOLE_MAX, Amount, Whole
from spillover.model.type_groups import GROUPS_MAX

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=16)]
"""The number of a node: `model.topology.NODES_MAX` is the largest."""

View: TypeAlias = tuple[Whole, Annotated[int, msgspec.Meta(ge=0, le=16)]]
"""The number of a view and the node that has made it. `is_later` says which of two is later."""

NO_VIEW: View = (0, 0)
"""The view that is earlier than any other."""


def number_after(number: int) -> int:
    """Returns the number of the view that follows this one. Numbers go round, so that there is a
    later one whatever a sibling tells."""
    return number % WHOLE_MAX + 1


def is_later(one: View, other: View) -> bool:
    """Returns whether a view follows another one: its number is ahead by less than half of all
    numbers."""
    if one[0] == other[0] or not (one[0] and other[0]):
        return one > other
    ahead = (one[0] - other[0]) % WHOLE_MAX
    return ahead < WHOLE_MAX - ahead or (ahead == WHOLE_MAX - ahead and one > other)


def later(one: View, other: View) -> View:
    """Returns the later one of two views."""
    return one if is_later(one, other) else other


CLASSES_MAX = 10_000
"""The most classes of tokens in a message. Why: a topology sets no limit, and a line must end."""

Counts: TypeAlias = Annotated[tuple[Whole, ...], msgspec.Meta(max_length=CLASSES_MAX)]
"""A number for each class of tokens, in the order of the topology. It is empty where all servers
are alike: they are one class, of which the field before it tells all."""


class LineLoad(NamedTuple):
    """The requests of a node that wait for tokens of the same classes."""

    waiting: Whole
    foreign: Whole
    age_s: Amount
    """The time for which the oldest one has waited; 0 where none waits."""


class SiblingLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """The load of a node, and a sign of life. If the node does not hear the receiver, only `hears`
    counts."""

    hears: tuple[Number, ...]
    """The siblings that the node hears."""
    view: View
    """The latest view that the node was asked for; `NO_VIEW` if it wants another, since a stream
    has broken."""
    waiting: Whole
    """The number of requests that wait there."""
    foreign: Whole
    """The number of those that neighbors have sent."""
    idle: Whole
    """The number of servers of its share that have nothing to do, or of tokens that nobody
    holds."""
    age_s: Amount
    """The time for which the oldest waiting request has waited; 0 where none waits."""
    load: Amount
    """The work that its own clients bring, as a share of the site's capacity."""
    leaves: bool = False
    """True if the node drains: new names do not belong to it."""
    lines: Annotated[tuple[LineLoad, ...], msgspec.Meta(max_length=GROUPS_MAX)] = ()
    """What waits there for tokens, in the order of the lines (`shares.Layout`). It is empty where
    all servers are alike."""
    idle_of: Counts = ()
    """The number of idle tokens, by class."""
    closed: Counts = ()
    """The classes, by their places, of which the node can start nothing for now."""


class Limits(msgspec.Struct, frozen=True):
    """The word of operators on the tokens of the site, which holds until they say another one."""

    at: View
    """The number of the word and the node that heard it. `is_later` says which of two holds."""
    tokens: Counts
    """The tokens of the site, by class."""
    out: Counts
    """The servers that take nothing new, by their places."""


class Prepare(msgspec.Struct, frozen=True):
    """A node makes a view: the receiver is to give no servers away and take none, and to tell its
    share."""

    view: View


class Frozen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to `Prepare`."""

    view: View
    share: Whole
    is_fresh: bool
    """True if the node has had no share since its start."""
    busy_for_s: Amount
    """The time after which all that lost nodes were running is over, as far as this one knows."""
    leaves: bool = False
    share_of: Counts = ()
    limits: Limits | None = None


class Installed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The view holds from now on, with these nodes and this share of the receiver."""

    view: View
    members: tuple[Number, ...]
    owners: Annotated[tuple[Number, ...], msgspec.Meta(min_length=1)]
    """The nodes of the view to which names belong: all that do not leave, or all if all do."""
    share: Whole
    share_of: Counts = ()
    limits: Limits | None = None


class Give(msgspec.Struct, frozen=True, omit_defaults=True):
    """This many servers of the sender's share are the receiver's, if it is in the same view."""

    view: View
    servers: Whole
    kind: Whole = 0
    """The place of the class whose tokens they are; 0 where all servers are alike."""


SiblingMessage: TypeAlias = SiblingLoad | Prepare | Frozen | Installed | Give
