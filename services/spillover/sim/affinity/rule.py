"""Our rule of where a prompt runs, as sites of engines play it: what decides is `core/affinity`,
here stands what a site knows and when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from operator import itemgetter
from statistics import fmean

from spillover.core.affinity.memory import Candidate, Choice, SessionMemory
from spillover.core.affinity.places import Dispatch, Places
from spillover.core.affinity.sites import Expected, Sites
from spillover.model.affinity import PlaceLoad, RanAt, SessionWork
from spillover.model.prompt import Prompt
from spillover.policy.affinity import miss_weight
from spillover.sim.affinity.engine import EngineState
from spillover.sim.affinity.federation import Answered, Bound, Federation, Sent


class AffinityRule:
    """The home sends a prompt to another site if an engine there costs less than each of its own,
    and that site chooses the engine anew. Without `between` the home goes by waits and ways alone:
    affinity is left to the sites."""

    def __init__(self, federation: Federation, *, between: bool = True) -> None:
        self._federation = federation
        self._between = between
        self._sites = [_Site(federation, site) for site in range(federation.setting.sites)]

    def send(self, prompt: Prompt, home: int, now_s: float) -> Sent:
        site, own = self._sites[home], self._federation.engines_of(home)
        weight = site.weight(now_s) if self._between else 0.0
        here = site.cheapest(prompt, own, weight, now_s)
        others = (one for one in range(len(self._federation.engines)) if one not in own)
        away = site.cheapest(prompt, others, weight, now_s)
        assert here is not None  # noqa: S101 - a site has an engine at least
        if away is None or away.cost_s >= here.cost_s:
            return Sent(prompt, home, home, here.place, is_bound=False)
        bound = site.note(prompt, away, now_s)
        site.unreported[away.place].append((now_s, bound.expected_tokens))
        there = self._federation.site_of(away.place)
        return Sent(prompt, home, there, away.place, is_bound=False, claim=bound.claim)

    def bind(self, sent: Sent, now_s: float) -> Bound:
        site, own = self._sites[sent.site], self._federation.engines_of(sent.site)
        choice = site.cheapest(sent.prompt, own, site.weight(now_s), now_s)
        assert choice is not None  # noqa: S101 - a site has an engine at least
        return site.note(sent.prompt, choice, now_s)

    def began(self, site: int, dispatch: Dispatch, now_s: float) -> None:
        """Nothing: it knows what engines tell."""

    def answered(self, answered: Answered) -> None:
        sent, bound, found = answered.sent, answered.bound, answered.reading.found_tokens
        prompt = sent.prompt
        if bound.claim is not None:
            self._sites[sent.site].memory.learn(bound.claim, found)
        if sent.site == sent.home:
            return
        memory, claim = self._sites[sent.home].memory, sent.claim
        if sent.engine != bound.engine:
            memory.forget(prompt.session, sent.engine, prompt.tokens)
            taken = answered.taken_tokens
            claim = memory.note(prompt.session, bound.engine, prompt.tokens, taken)
        if claim is not None:
            memory.learn(claim, found)


class UrlsRule:
    """Each site for itself, by what a node sees of the services behind its handler: the sizes of
    requests, and when first bytes come."""

    def __init__(self, federation: Federation) -> None:
        setting = federation.setting
        self._federation = federation
        slots = setting.engines * setting.kind.slots
        every = range(setting.sites)
        self._places = [Places(setting.engines, slots) for _ in every]

    def send(self, prompt: Prompt, home: int, now_s: float) -> Sent:  # noqa: ARG002 - of a rule
        return Sent(prompt, home, home, self._federation.engines_of(home)[0], is_bound=False)

    def bind(self, sent: Sent, now_s: float) -> Bound:
        prompt, own = sent.prompt, self._federation.engines_of(sent.site)
        states = [self._federation.state(sent.site, engine, now_s) for engine in own]
        running = sorted(((n, one.requests) for n, one in enumerate(states)), key=itemgetter(1))
        places = self._places[sent.site]
        place = places.choose(prompt.session, prompt.tokens, running, 0.0, now_s)
        dispatch = places.sent(prompt.session, prompt.tokens, place, now_s)
        return Bound(own[place], dispatch.expected, dispatch=dispatch)

    def began(self, site: int, dispatch: Dispatch, now_s: float) -> None:
        self._places[site].began(dispatch, now_s)

    def answered(self, answered: Answered) -> None:
        """Learns nothing more."""


class NodesRule(UrlsRule):
    """What nodes do: each site as `UrlsRule` does, and the home sends a prompt to another site by
    what nodes tell each other."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        every = range(federation.setting.sites)
        self._sites = [Sites(federation.setting.sessions) for _ in every]
        self._told: list[deque[tuple[float, tuple[PlaceLoad, ...]]]] = [deque() for _ in every]
        """The reports of each site that have not reached all others."""
        self._heard_s = [[-1.0 for _ in every] for _ in every]
        """When the last report left that each site has of each other one."""
        self._reports = 0
        self._away: dict[int, tuple[SessionWork, Expected]] = {}

    def send(self, prompt: Prompt, home: int, now_s: float) -> Sent:
        self._tell(now_s)
        self._hear(home, now_s)
        setting, sites = self._federation.setting, self._sites[home]
        running = list(enumerate([0] * setting.engines))
        told = prompt.session, prompt.tokens, running, 0.0, now_s
        asked = self._places[home].seen(*told)
        others = [one for one in range(setting.sites) if one != home]
        near = [(one, setting.rtt_s(home, one), 0.0) for one in others]
        away = sites.cheaper(asked, near, 0.0)
        if away is None:
            return super().send(prompt, home, now_s)
        self._away[id(prompt)] = asked, sites.sent(asked, away, now_s)
        engine = self._federation.engines_of(away.neighbor)[0]
        return Sent(prompt, home, away.neighbor, engine, is_bound=False)

    def bind(self, sent: Sent, now_s: float) -> Bound:
        self._tell(now_s)
        return super().bind(sent, now_s)

    def began(self, site: int, dispatch: Dispatch, now_s: float) -> None:
        self._tell(now_s)
        super().began(site, dispatch, now_s)

    def answered(self, answered: Answered) -> None:
        sent, dispatch = answered.sent, answered.bound.dispatch
        assert dispatch is not None  # noqa: S101 - each was bound by this rule
        if sent.site != sent.home:
            asked, expected = self._away.pop(id(sent.prompt))
            ran = RanAt(dispatch.place, dispatch.taken, dispatch.reused)
            self._sites[sent.home].answered(asked, expected, sent.site, ran)

    def _tell(self, now_s: float) -> None:
        """Makes the reports that are due, each by what its site knew then."""
        setting = self._federation.setting
        running = list(enumerate([0] * setting.engines))
        oldest_s = now_s - max(setting.rtts_s) - 2.0 * setting.report_s
        while (due_s := self._reports * setting.report_s) <= now_s:
            self._reports += 1
            for places, told in zip(self._places, self._told, strict=True):
                told.append((due_s, places.loads(running, 0.0, due_s)))
                while len(told) > 1 and told[0][0] < oldest_s:
                    told.popleft()

    def _hear(self, home: int, now_s: float) -> None:
        """Takes in what has come to a site by now."""
        heard_s = self._heard_s[home]
        for other, told in enumerate(self._told):
            way_s = self._federation.setting.rtt_s(home, other) / 2
            for told_s, loads in reversed(told):
                if other != home and told_s + way_s <= now_s:
                    if told_s > heard_s[other]:
                        heard_s[other] = told_s
                        self._sites[home].heard(other, 1, loads, told_s - way_s)
                    break


class _Site:
    """What one site knows."""

    def __init__(self, federation: Federation, number: int) -> None:
        self.memory = SessionMemory(federation.setting.sessions)
        self.unreported: list[deque[tuple[float, float]]] = [deque() for _ in federation.engines]
        """The prompts sent to each engine that its report cannot contain: when, and the tokens that
        are expected to be read."""
        self._federation = federation
        self._number = number
        self._known_s = -1.0
        self._states: list[EngineState] = []

    def known(self, now_s: float) -> list[EngineState]:
        """Returns what the site knows of all engines. A prompt that stays is sent and bound at
        once, by the same knowledge."""
        if now_s != self._known_s:
            every = range(len(self._federation.engines))
            state = self._federation.state
            self._states = [state(self._number, one, now_s) for one in every]
            self._known_s = now_s
        return self._states

    def cheapest(
        self, prompt: Prompt, engines: Iterable[int], weight: float, now_s: float
    ) -> Choice | None:
        known = self._candidates(engines, now_s)
        return self.memory.cheapest(prompt.session, prompt.tokens, known, weight)

    def note(self, prompt: Prompt, choice: Choice, now_s: float) -> Bound:
        expected = prompt.tokens - choice.reusable
        state = self.known(now_s)[choice.place]
        taken = state.taken_tokens + self._sent(choice.place, now_s) + expected
        self._known_s = -1.0
        claim = self.memory.note(prompt.session, choice.place, prompt.tokens, taken)
        return Bound(choice.place, expected, claim)

    def weight(self, now_s: float) -> float:
        """Returns how many times a miss counts."""
        return miss_weight(fmean(state.busy for state in self.known(now_s)))

    def _candidates(self, engines: Iterable[int], now_s: float) -> Iterator[Candidate]:
        federation, states = self._federation, self.known(now_s)
        per_s = federation.setting.kind.read_tokens_per_s
        for engine in engines:
            state, sent = states[engine], self._sent(engine, now_s)
            yield (
                engine,
                state.wait_s + sent / per_s,
                federation.setting.rtt_s(self._number, federation.site_of(engine)),
                per_s,
                state.taken_tokens + sent,
            )

    def _sent(self, engine: int, now_s: float) -> float:
        """Returns the tokens that were sent to an engine and that its report cannot contain."""
        setting, waiting = self._federation.setting, self.unreported[engine]
        rtt_s = setting.rtt_s(self._number, self._federation.site_of(engine))
        while waiting and waiting[0][0] + rtt_s + setting.report_s <= now_s:
            waiting.popleft()
        return sum(tokens for _, tokens in waiting)
