"""Announcements, and many clients with their nodes in virtual time."""

from __future__ import annotations

import heapq
import math
from random import Random

from spillover.core.membership.client_session import ClientSession
from spillover.core.membership.session_events import (
    Announced,
    Announcement,
    Connect,
    Connected,
    Leave,
    Lost,
    NotReached,
    Server,
    Started,
    TimerFired,
)
from spillover.policy.membership import surplus_of


def servers(names):
    """One at each url."""
    return tuple(Server(name, f"http://{name}") for name in names)


def urls(names):
    return [f"http://{name}" for name in names]


def told(cluster, names, version=1, *, by="a", clients=1, rank=0, surplus=0.0):
    """An announcement."""
    return Announcement(cluster, version, by, 0, servers(names), clients, rank, surplus)


class Crowd:
    """Many clients and their nodes in virtual time, without a network: who asks is let in."""

    def __init__(self, names, clients, *, rule="stratified", seed=1):
        self.now_s, self.version = 0.0, 0
        self.names = self.compared = tuple(names)
        self.at = {name: {} for name in names}  # client to attempt, in the order of coming
        self.dead = set()
        self.moves = []
        self.clients = [
            ClientSession(f"c{number}", urls(names), Random(f"{seed}/{number}"), rule=rule)
            for number in range(clients)
        ]
        self.due = []
        for number in range(clients):
            # As evenly as they come; how they begin is tested above.
            self.clients[number]._given = servers([names[number % len(names)]])
            self.clients[number].servers = servers(names)
            self.feed(number, Started())

    def feed(self, number, event):
        client = self.clients[number]
        for command in client.handle(event, self.now_s):
            if isinstance(command, Connect):
                name = command.server.url.removeprefix("http://")
                if name in self.dead:
                    self.feed(number, NotReached(command.attempt))
                else:
                    self.at.setdefault(name, {})[number] = command.attempt
                    said = self.said(name, len(self.at[name]) - 1)
                    self.feed(number, Connected(command.attempt, said))
            elif isinstance(command, Leave):
                self.moves.append(number)
                for line in self.at.values():
                    if line.get(number) == command.attempt:
                        del line[number]
        client.check()
        if math.isfinite(client.next_deadline()):
            heapq.heappush(self.due, (client.next_deadline(), number))

    def said(self, name, rank):
        line = self.at[name]
        total = sum(len(self.at.get(one, ())) for one in self.compared)
        surplus = surplus_of(len(line), total, len(self.compared))
        return told(name, self.names, self.version, clients=len(line), rank=rank, surplus=surplus)

    def change(self, names):
        """All nodes tell their clients at one instant."""
        self.version += 1
        self.compared, self.names = self.names, tuple(names)
        self.moves.clear()
        everyone = [
            (number, Announced(attempt, self.said(name, rank)))
            for name, line in self.at.items()
            for rank, (number, attempt) in enumerate(line.items())
        ]
        for number, event in everyone:
            self.feed(number, event)
        self.run()

    def kill(self, name):
        self.dead.add(name)
        self.moves.clear()
        for number, attempt in self.at.pop(name).items():
            self.feed(number, Lost(attempt))
        self.run()

    def run(self):
        until_s = self.now_s + 20.0
        while self.due and self.due[0][0] <= until_s:
            self.now_s, number = heapq.heappop(self.due)
            self.feed(number, TimerFired())
        self.now_s = until_s

    def counts(self):
        return {name: len(self.at.get(name, ())) for name in self.names}
