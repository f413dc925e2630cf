"""The machine of one client: to which node it belongs, and when it goes to which other one.

Theory of operation. A client has one *session* at one server. What its node announces is the list
of servers; a newer one is acted on after a wait, drawn from 0 to `change_wait_s`, by the rule of
`policy.membership`, from the list that the client last acted on: at first the urls that it was
given. Where the rule says another server, it asks there for a session, uses that, and then leaves
the old one. One attempt is under way at a time.

The rule counts by the client's rank, if that is of the instant at which the node told all of its
clients of the change. What a node says to one that has just come is for that one alone: such a
client draws. So does one that loses its server: it acts at once, as if that server was not listed.

Where the chosen server is not reached, the rest of its group (new servers, or survivors) is asked
in any order, then the other group, then all that are known, with a pause that grows. A client that
has a session, at a server that it may stay with, stays there, and tries again for a while. One
that its server asks to wait has time if it is connected: the list stays even if it comes again.

What the store of configurations says, where the client has one, counts as what a node says to one
that has just come, until the node has said it too. Without a session it is more servers to ask.

A whole round without success makes it forget how new its list is: a federation that was started
anew counts from 0 again.

Not here: HTTP, how long silence is, clocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

from spillover.core.membership import session_events as ev
from spillover.core.membership.choosing import STRATIFIED, Chooser
from spillover.core.membership.list_change import Change, change_between
from spillover.core.membership.server_line import ServerLine
from spillover.policy.backoff import backoff_s

CHANGE_WAIT_S: Final = 5.0
"""The longest wait before a client moves, as in Shraer & Reed: no server is to meet all of its new
clients at once."""

CONNECT_S: Final = 3.0
"""An attempt takes no longer."""

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
"""The longest pause between rounds in which no server was reached."""

COME_BACK_MAX: Final = 8
"""So often one that has a session asks for new servers that are not there: within a minute or so. A
configuration may know of a server before it has started."""

ASKED_TO_WAIT_MAX: Final = 10
"""So often in a row a server may tell a client that has a session to come later."""


class ClientSession:
    """One client, called `name`. `random` draws all that it draws; `virtual_nodes` is how often the
    rule `consistent-hash` puts each server on its circle; `in_order` has it begin with the first of
    the urls, and not with any."""

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        random: Random,
        *,
        rule: str = STRATIFIED,
        virtual_nodes: int = 1,
        change_wait_s: float = CHANGE_WAIT_S,
        in_order: bool = False,
    ) -> None:
        self._chooser = Chooser(rule, random, name, virtual_nodes)
        given = dict.fromkeys(url.rstrip("/") for url in urls)
        self._given = tuple(ev.SessionServer("", url) for url in given)
        self._in_given_order = in_order
        self._random = random
        self._change_wait_s = change_wait_s
        self.servers = self._given
        """The list that was last acted on."""
        self._stored: tuple[ev.SessionServer, ...] = ()  # what the store said last
        self._stamp: tuple[int, str, int] | None = None
        """The stamp of the newest list that came."""
        self.in_use: ev.SessionServer | None = None
        self.refused = 0
        """Announcements that cannot be meant."""
        self._session: int | None = None
        self._attempts = 0
        self._trying: ev.Connect | None = None
        self._line = ServerLine()
        """The servers to ask next, after the one that is being asked."""
        self._wanted: tuple[ev.SessionServer, ...] = ()
        """Where it should be: one that has a session may come back to them."""
        self._rounds = self._asked_to_wait = 0
        self._news: tuple[ev.Announcement, bool] | None = None
        """The announcement to act on, and whether its rank counts."""
        self._parting = self._ended = False
        self._act_s = self._again_s = self._expires_s = math.inf
        """When to act on the news, to ask the next in line, and to give up the attempt."""
        self._commands: list[ev.Command] = []
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            ev.Started: lambda _, now_s: self._start(now_s),
            ev.Connected: self._connected,
            ev.NotReached: self._not_reached,
            ev.Announced: self._announced,
            ev.Listed: self._listed,
            ev.Parting: self._part,
            ev.Lost: self._lost,
            ev.Ended: lambda _, __: self._end(),
            ev.TimerFired: lambda _, now_s: self._fire(now_s),
        }

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        """Take one event in; the commands for the shell, in order."""
        self._commands = []
        if not self._ended:
            self._handlers[type(event)](event, now_s)
        elif isinstance(event, ev.Connected):
            self._commands.append(ev.Leave(event.attempt))
        return self._commands

    def next_deadline(self) -> float:
        """Returns when to hand in the next `TimerFired`."""
        return min(self._act_s, self._again_s, self._expires_s)

    def check(self) -> None:
        """Raise AssertionError where it has lost its way: a client without a session is always on
        its way to one."""
        assert (self.in_use is None) == (self._session is None)
        assert (self._trying is None) == math.isinf(self._expires_s)
        assert self._trying is None or math.isinf(self._again_s)
        urls = [server.url.rstrip("/") for server in self._asking()]
        assert len(urls) == len(set(urls)), f"a server is in the line twice: {urls}"
        started = bool(self._attempts)
        if started and self._session is None and not self._ended:
            assert self._trying is not None or math.isfinite(self._again_s)
        assert not self._ended or math.isinf(self.next_deadline())

    # --- events -------------------------------------------------------------------------------

    def _start(self, now_s: float) -> None:
        given = self._given
        self._line.join(given if self._in_given_order else self._shuffled(given))
        self._ask_next(now_s)

    def _fire(self, now_s: float) -> None:
        if now_s >= self._expires_s and self._trying is not None:
            attempt = self._trying.attempt
            self._commands.append(ev.Leave(attempt))
            self._not_reached(ev.NotReached(attempt), now_s)
        if now_s >= self._act_s:
            self._act(now_s)
        if now_s >= self._again_s:
            self._ask_next(now_s)

    def _connected(self, event: ev.Connected, now_s: float) -> None:
        trying = self._trying
        if trying is None or event.attempt != trying.attempt:
            self._commands.append(ev.Leave(event.attempt))
            return
        old, self._session = self._session, event.attempt
        self.in_use = ev.SessionServer(event.announcement.cluster, trying.server.url)
        self._stop_trying()
        if self._parting:
            self._parting, self._act_s = False, math.inf if self._news is None else self._act_s
        self._commands.append(ev.Use(self.in_use))
        if old is not None:
            self._commands.append(ev.Leave(old, moved=True))
        self._hear(event.announcement, now_s, ranked=False)

    def _not_reached(self, event: ev.NotReached, now_s: float) -> None:
        trying = self._trying
        if trying is None or event.attempt != trying.attempt:
            return
        self._trying, self._expires_s = None, math.inf
        later_s = event.retry_after_s
        if later_s is not None and self._session is not None:
            self._asked_to_wait += 1
            if self._asked_to_wait <= ASKED_TO_WAIT_MAX:
                self._line.put_first(trying.server)
                later_s = min(max(later_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
                self._again_s = now_s + later_s * (0.5 + self._random.random())
                return
        self._ask_next(now_s)

    def _announced(self, event: ev.Announced, now_s: float) -> None:
        if event.attempt == self._session:
            self._hear(event.announcement, now_s, ranked=True)

    def _listed(self, event: ev.Listed, now_s: float) -> None:
        told = event.announcement
        if not told.can_be_meant:
            self.refused += 1
            return
        if self._session is not None:
            self._stored = told.servers
            self._hear(told, now_s, ranked=False)
            return
        known = {server.url.rstrip("/") for server in (*self._asking(), *self._known())}
        self._stored = told.servers
        new = [one for one in told.servers if one.url.rstrip("/") not in known]
        for server in self._shuffled(new):
            self._line.put_first(server)
        if new and math.isfinite(self._again_s):
            self._ask_next(now_s)

    def _part(self, event: ev.Parting, now_s: float) -> None:
        if event.attempt == self._session and not self._parting:
            self._parting = True
            within_s = min(max(event.within_s, 0.0), self._change_wait_s)
            self._act_s = min(self._act_s, now_s + within_s * self._random.random())

    def _lost(self, event: ev.Lost, now_s: float) -> None:
        if self._trying is not None and event.attempt == self._trying.attempt:
            self._not_reached(ev.NotReached(event.attempt), now_s)
            return
        if event.attempt != self._session:
            return
        lost, self._session, self.in_use = self.in_use, None, None
        assert lost is not None
        self._parting = False
        if self._trying is not None or math.isfinite(self._again_s):
            # It was on its way already. Where that fails it must not end any more.
            asking = {server.url.rstrip("/") for server in self._asking()}
            waiting = [one for one in self._known() if one.url.rstrip("/") not in asking]
            self._line.join(self._shuffled(waiting))
            self._again_s = now_s if self._trying is None else math.inf
        if self._news is not None or (self._trying is None and math.isinf(self._again_s)):
            self._follow(now_s, without=lost)
        if now_s >= self._again_s:
            self._ask_next(now_s)

    def _end(self) -> None:
        self._give_up_trying()
        if self._session is not None:
            self._commands.append(ev.Leave(self._session))
        self._session = self.in_use = self._news = None
        self._act_s = math.inf
        self._ended = True

    # --- lists --------------------------------------------------------------------------------

    def _hear(self, told: ev.Announcement, now_s: float, *, ranked: bool) -> None:
        if not told.can_be_meant:
            self.refused += 1
            return
        if ranked and self._news is not None:
            stored, _ = self._news
            if not stored.cluster and told.stamp == stored.stamp:
                self._news = told, True
                return
        is_repeated = ranked and told.stamp == self._stamp and told.surplus > 0.0
        if self._stamp is not None and told.stamp <= self._stamp and not is_repeated:
            return
        self._stamp = told.stamp
        own = self.in_use
        assert own is not None
        if (
            not is_repeated
            and self._news is None
            and {one.id for one in told.servers} == set(self._keys(told))
            and any(self._is_same(one, own) for one in told.servers)
        ):
            self.servers = told.servers
            return
        self._news = told, ranked
        if math.isinf(self._act_s):
            self._act_s = now_s + self._change_wait_s * self._random.random()

    def _act(self, now_s: float) -> None:
        """The wait is over, for a change, for a node that ends, or for both."""
        without = self.in_use if self._parting else None
        self._follow(now_s, without)

    def _follow(self, now_s: float, without: ev.SessionServer | None) -> None:
        """Go where the rule says; `without` is a server that is none for this client."""
        self._act_s = math.inf
        told, ranked = self._news or (None, False)
        self._news = None
        servers = self.servers if told is None else told.servers
        before = self._keys(told)
        # One that is on its way has acted, and counts as being there.
        own = self._target() or without or self.in_use
        ranked = ranked and own is not None and own == self.in_use and without is None
        self.servers = servers
        named = {server.id or server.url: server for server in servers}
        key = "" if own is None else self._key_of(own, servers)
        if without is not None:
            named.pop(self._key_of(without, servers), None)
        if not named:
            self._give_up_trying()
            self._line.join(servers)
            self._ask_next(now_s)
            return
        change = change_between(before, named)
        place = self._chooser.place(change, key, told if ranked else None)
        chosen = named[change.after[place]]
        if self.in_use is not None and self._is_same(chosen, self.in_use) and without is None:
            self._give_up_trying()
            return
        line = ServerLine()
        line.join(self._in_order(change, place, named))
        if self.in_use is None and without is not None:
            line.join([without])
        wanted = tuple(line)
        if self._trying is not None and chosen.is_at(self._trying.server):
            line.drop(chosen)
            self._line, self._wanted = line, wanted
            return
        self._give_up_trying()
        self._line, self._wanted = line, wanted
        self._ask_next(now_s)

    def _in_order(
        self, change: Change, place: int, named: Mapping[str, ev.SessionServer]
    ) -> Iterable[ev.SessionServer]:
        """The chosen server, the rest of its group, the other group. Without the other one where
        the client may stay with what it has."""
        chosen = change.after[place]
        survivors, new = change.after[: change.kept], change.after[change.kept :]
        first, second = (survivors, new) if place < change.kept else (new, survivors)
        order = [chosen, *self._shuffled([key for key in first if key != chosen])]
        if not self._may_stay():
            order += self._shuffled(second)
        servers = [named[key] for key in order]
        own = self.in_use
        return [one for one in servers if own is None or not self._is_same(one, own)]

    def _keys(self, told: ev.Announcement | None) -> tuple[str, ...]:
        """Returns the list last acted on by ids; urls that are of none of `told` stand for
        themselves."""
        servers = self.servers if told is None else told.servers
        return tuple(self._key_of(server, servers) for server in self.servers)

    def _key_of(self, server: ev.SessionServer, servers: Sequence[ev.SessionServer]) -> str:
        if server.id:
            return server.id
        own = self.in_use
        if own is not None and own.id and own.url == server.url:
            return own.id
        at = next((one.id for one in servers if one.url.rstrip("/") == server.url), "")
        return at or server.url

    # --- attempts -----------------------------------------------------------------------------

    def _ask_next(self, now_s: float) -> None:
        self._again_s = math.inf
        if not self._line:
            if self._may_stay():
                if not self._wanted or self._rounds >= COME_BACK_MAX:
                    self._stop_trying()
                    return
                draw = self._random.random()
                self._again_s = now_s + backoff_s(self._rounds, 1.0, LONGEST_PAUSE_S, draw)
                self._rounds += 1
                self._line.join(self._wanted)
                return
            self._again_s = now_s + backoff_s(
                self._rounds, FIRST_PAUSE_S, LONGEST_PAUSE_S, self._random.random()
            )
            self._rounds += 1
            self._stamp = None
            self._line.join(self._shuffled(self._known()))
            return
        self._attempts += 1
        self._trying = ev.Connect(self._attempts, self._line.popleft())
        self._expires_s = now_s + CONNECT_S
        self._commands.append(self._trying)

    def _give_up_trying(self) -> None:
        if self._trying is not None:
            self._commands.append(ev.Leave(self._trying.attempt))
        self._stop_trying()

    def _stop_trying(self) -> None:
        self._trying = None
        self._line.clear()
        self._wanted = ()
        self._rounds = self._asked_to_wait = 0
        self._again_s = self._expires_s = math.inf

    def _target(self) -> ev.SessionServer | None:
        """Returns where it is on its way to."""
        if self._trying is not None:
            return self._trying.server
        return self._line.first if math.isfinite(self._again_s) else None

    def _asking(self) -> tuple[ev.SessionServer, ...]:
        """Returns whom it asks, and then those in line."""
        return tuple(self._line) if self._trying is None else (self._trying.server, *self._line)

    def _known(self) -> list[ev.SessionServer]:
        """Returns all servers that were ever told, but for what is in use: unless that has asked
        to go, and perhaps takes clients again."""
        known = {server.url.rstrip("/"): server for server in self.servers}
        for server in (*self._stored, *self._given):
            known.setdefault(server.url.rstrip("/"), server)
        own = self.in_use
        everyone = known.values()
        if own is None or self._parting:
            return list(everyone)
        return [one for one in everyone if not self._is_same(one, own)] or list(everyone)

    def _may_stay(self) -> bool:
        own = self.in_use
        if own is None or self._parting:
            return False
        return any(self._is_same(server, own) for server in self.servers)

    def _is_same(self, one: ev.SessionServer, other: ev.SessionServer) -> bool:
        return one.id == other.id if one.id and other.id else one.url == other.url

    def _shuffled(self, items: Sequence[Any]) -> list[Any]:
        return self._random.sample(items, len(items))
