"""Whatever may happen to one client: servers that come, go, hang, lie and refuse."""

import math
from collections import Counter
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spillover.core.membership.client_session import ClientSession
from spillover.core.membership.session_events import (
    Announced,
    Connect,
    Connected,
    Leave,
    Listed,
    Lost,
    NotReached,
    Parting,
    Started,
    TimerFired,
)
from support.client_sessions import stored, told, urls
from support.few import examples

NAMES = "abcdefgh"
LISTS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True)


class AnythingMayHappen(RuleBasedStateMachine):
    """One client among servers that come, go, hang, lie and refuse."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        self.names, self.version = list("abc"), 1
        self.up = set("abc")
        self.client = ClientSession("me", urls("ab"), Random(3))
        self.asked, self.sessions = {}, {}
        self.used = None
        self.at_once = Counter()
        self.obey(self.client.handle(Started(), 0.0))

    def obey(self, commands):
        for command in commands:
            if isinstance(command, Connect):
                assert not self.asked, "one attempt at a time"
                self.asked[command.attempt] = command.server.url.removeprefix("http://")
                self.at_once[self.now_s] += 1
                assert self.at_once[self.now_s] <= 4 * len(NAMES), "it spins"
            elif isinstance(command, Leave):
                known = command.attempt in self.asked or command.attempt in self.sessions
                assert known, "left what it does not have"
                self.asked.pop(command.attempt, None)
                self.sessions.pop(command.attempt, None)
            else:
                self.used = command.server.id
                assert self.used in self.sessions.values()

    def feed(self, event):
        self.obey(self.client.handle(event, self.now_s))

    @invariant()
    def is_sane(self):
        self.client.check()
        assert len(self.sessions) <= 1, "two servers in use"
        if self.sessions:
            assert list(self.sessions.values()) == [self.used]
        assert self.client.next_deadline() - self.now_s <= 15.0 or math.isinf(
            self.client.next_deadline()
        )

    def connect(self):
        attempt, name = self.asked.popitem()
        if name in self.up:
            self.sessions[attempt] = name
            self.feed(Connected(attempt, told(name, self.names, self.version)))
        else:
            self.feed(NotReached(attempt))

    @precondition(lambda self: self.asked)
    @rule()
    def a_server_answers(self):
        self.connect()

    @precondition(lambda self: self.asked)
    @rule(retry_after_s=st.floats(0, 5))
    def a_server_asks_to_wait(self, retry_after_s):
        self.feed(NotReached(self.asked.popitem()[0], retry_after_s))

    @rule()
    def time_passes(self):
        due_s = self.client.next_deadline()
        if math.isfinite(due_s):
            self.now_s = max(self.now_s, due_s)
            self.feed(TimerFired())
            assert self.client.next_deadline() > self.now_s

    @rule(names=LISTS, clients=st.integers(1, 9), data=st.data())
    def the_configuration_changes(self, names, clients, data):
        self.names, self.version = names, self.version + 1
        self.up |= set(names)
        rank = data.draw(st.integers(0, clients - 1))
        for attempt, name in list(self.sessions.items()):
            said = told(name, names, self.version, clients=clients, rank=rank)
            self.feed(Announced(attempt, said))

    @rule(names=LISTS, back=st.integers(0, 3), is_new=st.booleans())
    def the_store_says(self, names, back, is_new):
        """Something old, what nodes say too, or what they have not heard yet."""
        if is_new:
            self.names, self.version = names, self.version + 1
            self.up |= set(names)
        self.feed(Listed(stored(names if back else self.names, self.version - back)))

    @precondition(lambda self: self.sessions)
    @rule(names=LISTS, back=st.integers(0, 3), rank=st.integers(-3, 12))
    def a_node_lies(self, names, back, rank):
        (attempt, name), *_ = self.sessions.items()
        said = told(name, names + names[:1], self.version + back, rank=rank)
        self.feed(Announced(attempt, said))
        self.feed(Announced(attempt, told(name, names, self.version - back - 1, rank=rank)))

    @rule(name=st.sampled_from(NAMES))
    def a_server_dies(self, name):
        self.up.discard(name)
        for attempt, at in list(self.sessions.items()):
            if at == name:
                del self.sessions[attempt]
                self.feed(Lost(attempt))

    @rule(name=st.sampled_from(NAMES))
    def a_server_comes_back(self, name):
        self.up.add(name)

    @precondition(lambda self: self.sessions)
    @rule(within_s=st.floats(0, 100))
    def a_node_ends(self, within_s):
        self.feed(Parting(next(iter(self.sessions)), within_s))

    def teardown(self):
        """All is well again: the client gets to a server of the list, and stays there."""
        self.up = set(NAMES)
        self.names, self.version = list("ab"), self.version + 1
        for attempt, name in list(self.sessions.items()):
            self.feed(Announced(attempt, told(name, self.names, self.version)))
        end_s = self.now_s + 60.0
        while self.now_s < end_s:
            while self.asked:
                self.connect()
            self.now_s = min(end_s, self.client.next_deadline())
            self.feed(TimerFired())
        while self.asked:
            self.connect()
        assert self.used in {"a", "b"}
        assert list(self.sessions.values()) == [self.used]
        assert math.isinf(self.client.next_deadline())


AnythingMayHappen.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
test_anything_may_happen = AnythingMayHappen.TestCase
