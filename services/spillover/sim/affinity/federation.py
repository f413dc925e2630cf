"""Sites of engines under one rule, in virtual time: prompts come to their homes, are sent to where
the rule says, and their first tokens come back.

A site knows its own engines at once, and those of another site as they were when the last report
left. Our rule is in `rule`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, Protocol

from spillover.core.affinity.memory import SESSIONS, Claim
from spillover.core.affinity.places import Dispatch
from spillover.model.prompt import Prompt
from spillover.sim.affinity.engine import Engine, EngineKind, EngineState, PromptPrefill


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinitySetting:
    """The sites, and what lies between them."""

    sites: int = 3
    engines: int = 4
    """The number of engines at each site."""
    kind: EngineKind = field(default_factory=EngineKind)
    rtts_s: tuple[float, ...] = (0.037, 0.279, 0.456)
    """The times there and back: of sites a and b the one at a + b, from the beginning again."""
    report_s: float = 0.05
    """The time between reports."""
    sessions: int = SESSIONS
    """The number of sessions that a site remembers."""

    def rtt_s(self, a: int, b: int) -> float:
        """Returns the time from one site to another and back."""
        return 0.0 if a == b else self.rtts_s[(a + b) % len(self.rtts_s)]


class Sent(NamedTuple):
    """A prompt on its way to a site."""

    prompt: Prompt
    home: int
    site: int
    engine: int
    """The engine that the home chose, or that it expects the site to choose."""
    is_bound: bool
    """Whether the home's choice holds at the site."""
    claim: Claim | None = None
    """What the home remembered of the session at that engine."""


class Bound(NamedTuple):
    """The engine that a site has chosen for a prompt."""

    engine: int
    expected_tokens: float
    claim: Claim | None = None
    """What the site remembered of the session at the engine."""
    dispatch: Dispatch | None = None
    """How a node has sent it, where one does."""


class Answered(NamedTuple):
    """A prompt whose first token has come back to its home."""

    sent: Sent
    bound: Bound
    reading: PromptPrefill
    taken_tokens: float
    """What the engine had taken on when it took this prompt, which is included."""
    first_token_s: float
    """The time from the client's request to its first token."""


class Began(NamedTuple):
    """A prompt that has its first token, at the site of its engine."""

    site: int
    dispatch: Dispatch


class Rule(Protocol):
    """A rule of where prompts run. All sites share the object, not what they know."""

    def send(self, prompt: Prompt, home: int, now_s: float) -> Sent:
        """Returns where the home sends a prompt."""

    def bind(self, sent: Sent, now_s: float) -> Bound:
        """Returns the engine that the site chooses for a prompt that was sent there."""

    def began(self, site: int, dispatch: Dispatch, now_s: float) -> None:
        """Learns from a first token at the site of its engine, of what nodes have sent."""

    def answered(self, answered: Answered) -> None:
        """Learns from a first token that has come home."""


class Federation:
    """The engines of all sites, numbered through."""

    def __init__(self, setting: AffinitySetting) -> None:
        self.setting = setting
        self.engines = [Engine(setting.kind) for _ in range(setting.sites * setting.engines)]
        self.flying_tokens = [0] * len(self.engines)
        """The tokens of the prompts on their way to each engine."""

    def engines_of(self, site: int) -> range:
        return range(site * self.setting.engines, (site + 1) * self.setting.engines)

    def site_of(self, engine: int) -> int:
        return engine // self.setting.engines

    def state(self, viewer: int, engine: int, now_s: float) -> EngineState:
        site, setting = self.site_of(engine), self.setting
        if site != viewer:
            reported = (now_s - setting.rtt_s(viewer, site) / 2) // setting.report_s
            now_s = reported * setting.report_s
        return self.engines[engine].state(now_s)


def play(
    prompts: Sequence[Prompt], homes: Sequence[int], federation: Federation, rule: Rule
) -> list[Answered]:
    """Plays prompts in order of time, each from its home. Returns what came of each, in the order
    in which first tokens came home."""
    setting, order = federation.setting, count()
    events: list[tuple[float, int, Sent | Began | Answered]] = []
    answers: list[Answered] = []

    def run_until(until_s: float) -> None:
        while events and events[0][0] <= until_s:
            at_s, _, event = heappop(events)
            if isinstance(event, Sent):
                bind(event, at_s)
            elif isinstance(event, Began):
                rule.began(event.site, event.dispatch, at_s)
            else:
                answers.append(event)
                rule.answered(event)

    def bind(sent: Sent, at_s: float) -> None:
        prompt = sent.prompt
        federation.flying_tokens[sent.engine] -= prompt.tokens
        bound = Bound(sent.engine, prompt.tokens) if sent.is_bound else rule.bind(sent, at_s)
        engine = federation.engines[bound.engine]
        taken = engine.state(at_s).taken_tokens + bound.expected_tokens
        reading = engine.take(prompt, at_s, bound.expected_tokens)
        if bound.dispatch is not None:
            began = Began(sent.site, bound.dispatch)
            heappush(events, (reading.first_token_s, next(order), began))
        back_s = reading.first_token_s + setting.rtt_s(sent.home, sent.site) / 2
        answered = Answered(sent, bound, reading, taken, back_s - prompt.time_s)
        heappush(events, (back_s, next(order), answered))

    for prompt, home in zip(prompts, homes, strict=True):
        run_until(prompt.time_s)
        sent = rule.send(prompt, home, prompt.time_s)
        federation.flying_tokens[sent.engine] += prompt.tokens
        if sent.site == home:
            bind(sent, prompt.time_s)
        else:
            arrives_s = prompt.time_s + setting.rtt_s(home, sent.site) / 2
            heappush(events, (arrives_s, next(order), sent))
    run_until(float("inf"))
    return answers
