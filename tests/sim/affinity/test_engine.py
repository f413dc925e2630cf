"""An engine in virtual time, beside one that is played event by event."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.model.prompt import Prompt
from spillover.sim.affinity.cache import PrefixCache
from spillover.sim.affinity.engine import Engine, EngineKind

KIND = EngineKind(read_tokens_per_s=1_000.0, slots=2, cache_tokens=4 * 512)
PROMPTS = st.lists(
    st.tuples(st.floats(0, 3), st.integers(1, 2_500), st.integers(1, 60), st.sampled_from("abc")),
    min_size=1,
    max_size=20,
)


def prompt_of(time_s, tokens, answer_tokens, family):
    blocks = tuple(1_000 * ord(family) + n for n in range(tokens // 512))
    return Prompt(time_s, tokens, answer_tokens, blocks, 1)


class Played:
    """The same engine, step by step in small times: nothing is worked out ahead."""

    def __init__(self, kind):
        self.kind, self.cache = kind, PrefixCache(kind.cache_tokens)
        self.now_s, self.queue, self.reading, self.writing = 0.0, deque(), None, []
        self.first_s = {}

    def run_until(self, until_s):
        while True:
            if self.reading is None and self.queue and len(self.writing) < self.kind.slots:
                number, prompt = self.queue.popleft()
                found = self.cache.found(prompt.blocks, prompt.tokens)
                left_s = (prompt.tokens - found) / self.kind.read_tokens_per_s
                self.reading = [number, prompt, self.now_s + left_s, found]
            pace_s = self.kind.token_s + self.kind.token_each_s * len(self.writing)
            next_s = [until_s]
            if self.reading:
                next_s.append(self.reading[2])
            next_s += [self.now_s + left * pace_s for left in self.writing]
            step_s = max(min(next_s), self.now_s)
            self.writing = [left - (step_s - self.now_s) / pace_s for left in self.writing]
            self.now_s = step_s
            done = [left for left in self.writing if left <= 1e-9]
            self.writing = [left for left in self.writing if left > 1e-9]
            if self.reading and self.reading[2] <= self.now_s:
                number, prompt, _, found = self.reading
                self.cache.enter(prompt.blocks)
                self.first_s[number] = (self.now_s, found)
                self.reading = None
                if prompt.answer_tokens > 1:
                    self.writing.append(prompt.answer_tokens - 1)
            elif not done and step_s >= until_s:
                return


@given(PROMPTS)
def test_what_is_worked_out_ahead_is_what_happens(drawn):
    """First tokens and what was found, of prompts that wait for each other and for slots."""
    prompts = [prompt_of(*one) for one in sorted(drawn)]
    engine, played = Engine(KIND), Played(KIND)
    ahead = [engine.take(one, one.time_s, one.tokens) for one in prompts]
    for number, prompt in enumerate(prompts):
        played.run_until(prompt.time_s)
        played.queue.append((number, prompt))
    played.run_until(1e4)
    for number, reading in enumerate(ahead):
        first_s, found = played.first_s[number]
        assert reading.first_token_s == pytest.approx(first_s, abs=1e-6)
        assert reading.found_tokens == found


def test_the_state_can_be_asked_of_any_time_that_has_come():
    """Two prompts of a second and half a second, of which the second one waits."""
    engine = Engine(KIND)
    engine.take(Prompt(0.0, 1_000, 1, (), 1), 0.0, 1_000)
    engine.take(Prompt(0.5, 500, 1, (), 2), 0.5, 500)
    early, late = engine.state(0.25), engine.state(0.75)
    assert (early.wait_s, early.requests, early.taken_tokens) == (0.75, 1, 1_000)
    assert (late.wait_s, late.requests, late.taken_tokens) == (0.75, 2, 1_500)
    assert 0.0 < early.busy < late.busy < 1.0
    assert engine.state(100.0)[:2] == (0.0, 0)
    assert engine.state(1_000.0).busy < 1e-9


def test_a_prompt_that_nobody_waits_for_leaves_its_slot():
    """All slots are taken by long answers: the next prompt is read once one of them is left."""
    engine = Engine(KIND)
    taken = [engine.take(Prompt(0.0, 10, 10**6, (), one), 0.0, 10) for one in range(KIND.slots)]
    assert engine.free_s(1.0) > 100.0
    engine.leave(taken[0], 1.0)
    assert (engine.free_s(1.0), engine.state(1.0).requests) == (1.0, KIND.slots - 1)


def test_a_cache_finds_beginnings_and_drops_the_ends_of_what_is_old():
    cache = PrefixCache(4 * 512)
    cache.enter((1, 2, 3))
    assert cache.found((1, 2, 9), 5_000) == 1_024
    assert cache.found((9, 2), 5_000) == 0
    assert cache.found((1, 2, 3), 3 * 512) == 3 * 512 - 1
    cache.enter((7, 8))
    assert cache.found((1, 2, 3), 5_000) == 1_024
