"""Sites of engines play a small trace of sessions: what rules make of it, and that nothing is
lost.
"""

import random

import pytest

from spillover.model.prompt import Prompt
from spillover.sim.affinity.engine import EngineKind
from spillover.sim.affinity.federation import AffinitySetting, Federation, play
from spillover.sim.affinity.rule import AffinityRule
from spillover.sim.affinity.run import RULES, homes_of, run_affinity
from spillover_lab.rivals.rules import RIVALS

SETTING = AffinitySetting(engines=2, kind=EngineKind(cache_tokens=200_000))


def conversations(count=120, turns=5, seed=1):
    """Sessions of a few turns, each 2,000 tokens longer than the one before, minutes apart."""
    draws, prompts = random.Random(seed), []
    for session in range(1, count + 1):
        begin_s = draws.uniform(0, 600)
        for turn in range(1, turns + 1):
            tokens = 2_000 * turn
            blocks = tuple(session * 1_000 + block for block in range(tokens // 512))
            time_s = begin_s + 30 * turn
            prompts.append(Prompt(round(time_s), tokens, 50, blocks, session))
    return sorted(prompts)


@pytest.mark.parametrize("rule", [*RULES, *RIVALS])
def test_every_prompt_gets_its_first_token_once(rule):
    """Under overload, too; and engines read what they do not find."""
    prompts = conversations()
    federation = Federation(SETTING)
    rule_of = {**RULES, **RIVALS}[rule]
    homes = homes_of(prompts, 3, 1, skewed=True)
    answers = play(prompts, homes, federation, rule_of(federation, 1))
    assert sorted(one.sent.prompt for one in answers) == prompts
    for one in answers:
        least_s = (one.sent.prompt.tokens - one.reading.found_tokens) / 8_000
        least_s += SETTING.rtt_s(one.sent.home, one.sent.site)
        assert one.first_token_s >= least_s - 1e-9
        assert federation.site_of(one.bound.engine) == one.sent.site
    assert federation.flying_tokens == [0] * 6


def played(prompts, load):
    rules = (RULES["affinity"], RULES["waits"])
    return [run_affinity(prompts, SETTING, rule, load=load, seed=1) for rule in rules]


def test_affinity_finds_more_and_answers_sooner_than_the_same_rule_blind():
    prompts = conversations(250)
    ours, blind = played(prompts, load=0.8)
    assert ours["found"] > 1.2 * blind["found"]
    assert ours["mean_s"] < 0.5 * blind["mean_s"]


def test_where_nothing_is_reused_affinity_costs_little():
    """Sessions repeat, their blocks do not: the table's claims turn out worth nothing."""
    prompts = [one._replace(blocks=()) for one in conversations(250)]
    ours, blind = played(prompts, load=0.9)
    assert ours["found"] == 0.0
    assert ours["mean_s"] < 1.1 * blind["mean_s"]


def test_one_site_alone_and_equal_seeds():
    """The same seed gives the same figures; with one site nothing moves."""
    setting = AffinitySetting(sites=1, engines=3)
    runs = [
        run_affinity(conversations(), setting, RULES["affinity"], load=0.7, seed=seed)
        for seed in (3, 3, 4)
    ]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0]["moved"] == 0.0


def test_an_answer_from_elsewhere_corrects_what_the_home_expected():
    """The site chose another engine than the home had expected: the home remembers that one."""
    federation = Federation(AffinitySetting(sites=2, engines=2, rtts_s=(0.1,)))
    rule = AffinityRule(federation)
    long = [Prompt(0.0, 80_000, 1, (), n) for n in (1, 2)]
    late = [Prompt(0.05, 8_000, 1, (), 3), Prompt(0.051, 16_000, 1, (), 4)]
    answers = play([*long, *late], [0, 0, 0, 1], federation, rule)
    moved = {one.sent.prompt.session: one for one in answers if one.sent.site != one.sent.home}
    assert 3 in moved
    assert moved[3].bound.engine in {2, 3}


def test_nodes_that_tell_each_other_of_their_places_do_nearly_as_well_as_the_rule():
    """Three sites, most of whose conversations begin at one: alone each keeps what it has."""
    rules = RULES["affinity"], RULES["nodes"], RULES["urls"]
    told, nodes, alone = (
        run_affinity(conversations(250), SETTING, rule, load=0.8, seed=1) for rule in rules
    )
    assert nodes["found"] > 0.95 * told["found"]
    assert nodes["mean_s"] < 1.3 * told["mean_s"]
    assert nodes["mean_s"] < 0.2 * alone["mean_s"]
