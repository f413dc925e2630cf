"""When a name is looked up, and what whoever asks is told, with time passed in."""

import math

import pytest

from spillover.core.hosts.answers import (
    ADDRESSES_MAX,
    FAILING_MAX,
    FRESH_S,
    FULL,
    GONE_S,
    LOOKUPS_MAX,
    NAMES_MAX,
    PATIENCE_S,
    RETRY_S,
    SUSPECT_S,
    Answers,
    Failure,
)

A, B, C = ((2, f"10.0.0.{number}", 0, 0) for number in (1, 2, 3))
SIX, SEVEN = ((10, f"fd00::{number}", 0, 0) for number in (6, 7))
FAILED, GONE = Failure("later", -3), Failure("no such name", -2, is_gone=True)


def asked(answers, now_s, name="h"):
    """Whether a lookup begins, and what is told."""
    return answers.begin(name, now_s), answers.ask(name, now_s)


def known(*addresses, now_s=0.0):
    """Answers that know a host."""
    answers = Answers()
    answers.begin("h", now_s)
    answers.found("h", addresses, now_s)
    return answers


def test_a_name_is_looked_up_once_however_many_ask_and_again_when_its_answer_is_old():
    answers = Answers()
    assert asked(answers, 0.0) == (True, math.inf)
    assert asked(answers, 0.5) == (False, math.inf)
    answers.found("h", [A], 1.0)
    assert asked(answers, 1.0) == (False, (A,))
    assert asked(answers, 1.0 + FRESH_S - 0.01) == (False, (A,))
    again_s = 1.0 + FRESH_S
    assert asked(answers, again_s) == (True, again_s + PATIENCE_S)
    answers.found("h", [B], again_s + 0.01)
    assert asked(answers, again_s + 0.01) == (False, (B,))


def test_a_lookup_that_hangs_or_fails_leaves_the_answer_before_it():
    """It costs the connections of one moment PATIENCE_S, and later ones nothing."""
    answers = known(A)
    assert asked(answers, 10.0) == (True, 10.0 + PATIENCE_S)
    assert asked(answers, 10.0 + PATIENCE_S) == (False, (A,))
    assert asked(answers, 20.0) == (False, (A,))
    answers.failed("h", FAILED, 20.0)
    assert asked(answers, 20.0) == (False, (A,))
    assert asked(answers, 20.0 + RETRY_S) == (True, (A,))
    answers.found("h", [A], 22.0)
    assert asked(answers, 30.0) == (True, 30.0 + PATIENCE_S)


def test_a_name_that_never_had_an_answer_is_tried_again_after_a_while():
    answers = Answers()
    answers.begin("h", 0.0)
    answers.failed("h", FAILED, 1.0)
    assert asked(answers, 1.5) == (False, FAILED)
    again_s = 1.0 + RETRY_S
    assert asked(answers, again_s) == (True, again_s + PATIENCE_S)
    assert asked(answers, again_s + PATIENCE_S) == (False, FAILED)


def test_a_name_that_has_ceased_to_exist_is_given_up():
    answers = known(A)
    for now_s in (10.0, 10.0 + GONE_S / 2):
        assert asked(answers, now_s)[0]
        answers.failed("h", GONE, now_s)
        assert answers.ask("h", now_s) == (A,)
    assert asked(answers, 10.0 + GONE_S) == (True, 10.0 + GONE_S + PATIENCE_S)
    answers.failed("h", GONE, 10.0 + GONE_S)
    assert answers.ask("h", 10.0 + GONE_S) is GONE
    assert asked(answers, 20.0 + GONE_S)[0]
    answers.failed("h", FAILED, 20.0 + GONE_S)  # which is no sign that it is back
    assert answers.ask("h", 20.0 + GONE_S) is FAILED


def test_names_that_hang_leave_room_for_others():
    """And beyond all room who has an answer goes by it, and others are told."""
    answers = known(A)
    for number in range(LOOKUPS_MAX):
        answers.begin(str(number), 0.0)
        answers.failed(str(number), FAILED, 0.0)
    begun = [number for number in range(LOOKUPS_MAX) if answers.begin(str(number), RETRY_S)]
    assert len(begun) == FAILING_MAX
    assert answers.ask(str(LOOKUPS_MAX - 1), RETRY_S) is FAILED
    rest = [f"new {number}" for number in range(LOOKUPS_MAX - FAILING_MAX)]
    assert all(answers.begin(name, RETRY_S) for name in rest)
    assert asked(answers, RETRY_S, "late") == (False, FULL)
    assert asked(answers, FRESH_S) == (False, (A,))
    answers.failed("0", FAILED, FRESH_S)
    assert asked(answers, FRESH_S, "late") == (True, math.inf)


def test_no_more_names_are_remembered_than_said_and_none_is_forgotten_while_it_is_looked_up():
    answers = Answers()
    answers.begin("hangs", 0.0)
    for number in range(NAMES_MAX + 10):
        answers.begin(str(number), 1.0 + number)
        answers.found(str(number), [A], 1.0 + number)
    assert len(answers._hosts) == NAMES_MAX
    assert answers.is_under_way("hangs")
    assert answers.under_way == 1


def test_families_take_turns_and_addresses_of_one_rotate():
    answers = known(SIX, SEVEN, A, B, C)
    told = [answers.ask("h", 0.0) for _ in range(3)]
    assert told[0] == (SIX, A, SEVEN, B, C)
    assert told[1] == (SEVEN, B, SIX, C, A)
    assert told[2] == (SIX, C, SEVEN, A, B)


def test_who_did_not_take_a_connection_comes_last_for_a_while_and_then_one_tries_it_again():
    answers = known(A, B)
    answers.tried("h", B, {A: "no answer"}, 0.0)
    assert answers.why_late("h", 1.0) == "10.0.0.1: no answer"
    for _ in range(4):
        assert answers.ask("h", SUSPECT_S - 0.1) == (B, A)
    over_s = SUSPECT_S + 0.1
    assert [answers.ask("h", over_s) for _ in range(6)].count((A, B)) == 1
    answers.tried("h", A, {}, over_s)
    assert [answers.ask("h", over_s) for _ in range(6)].count((A, B)) == 3


def test_a_host_that_cannot_be_reached_may_have_moved():
    """So that its name is looked up before its time, but no more often than any other."""
    answers = known(A)
    answers.tried("h", None, {A: "Connection refused"}, 0.1)
    assert asked(answers, 0.2) == (False, (A,))
    assert asked(answers, RETRY_S) == (True, RETRY_S + PATIENCE_S)
    answers.found("h", [B], RETRY_S)
    assert asked(answers, RETRY_S) == (False, (B,))


@pytest.mark.parametrize("given", [[A, A, B, A], [(2, f"10.1.{n}.1", 0, 0) for n in range(100)]])
def test_an_answer_is_cut_to_its_bound_and_told_once(given):
    told = known(*given).ask("h", 0.0)
    assert len(told) == len(set(told)) == min(ADDRESSES_MAX, len(set(given)))


def test_it_is_told_what_takes_long():
    answers = Answers()
    assert answers.why_late("h", 0.0) == ""
    answers.begin("h", 0.0)
    assert answers.why_late("h", 2.5) == "h is still being looked up"
    answers.found("h", [A], 3.0)
    answers.tried("h", None, {A: "no answer"}, 4.0)
    assert answers.why_late("h", 4.0) == ""  # there is but one
