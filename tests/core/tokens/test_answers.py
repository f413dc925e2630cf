"""When what a server says to a type of jobs is worth a word."""

from __future__ import annotations

from random import Random

import pytest

from spillover.core.tokens.answers import FAILED, NOT_RUN, REJECTED, RUN_LENGTH, TypeAnswers

SMALL, BIG, THIRD = 1, 0, 2
CHAT, BATCH = 0, 1


def told(answers):
    return [
        (server, kind, run.how, run.count, done) for server, kind, run, done in answers.telling()
    ]


@pytest.mark.parametrize("how", [NOT_RUN, FAILED])
def test_what_is_not_run_is_by_itself(how):
    """RUN_LENGTH in a row suffice; what others do is only told along."""
    answers = TypeAnswers()
    for _ in range(RUN_LENGTH):
        assert told(answers) == []
        answers.not_done(SMALL, BATCH, how, "503")
    answers.done(BIG, BATCH)
    answers.done(SMALL, CHAT)
    assert told(answers) == [(SMALL, BATCH, how, RUN_LENGTH, 1)]


def test_one_that_is_done_ends_it():
    """Nothing is kept then: jobs that are done cost nothing again."""
    answers = TypeAnswers()
    for _ in range(RUN_LENGTH):
        answers.not_done(SMALL, BATCH, NOT_RUN, "503")
    answers.done(SMALL, BATCH)
    assert (told(answers), bool(answers)) == ([], False)


@pytest.mark.parametrize(("length", "done", "rejected", "is_told"), [
    (9, 20, 0, True), (9, 20, 5, False), (40, 5, 0, True), (40, 4, 0, False), (40, 0, 0, False),
    (10, 20, 2, True), (9, 20, 2, False), (5, 40, 0, False), (6, 40, 0, True),
])  # fmt: skip
def test_rejections_count_only_beside_others_that_do_the_like(length, done, rejected, is_told):
    """What would come of the others' share by chance is the clients' fault."""
    answers = TypeAnswers()
    for _ in range(length):
        answers.not_done(SMALL, BATCH, REJECTED, "404")
    for _ in range(rejected):
        answers.not_done(BIG, BATCH, REJECTED, "404")
        answers.done(BIG, CHAT)
    for _ in range(done):
        answers.done(BIG, BATCH)
    assert told(answers) == ([(SMALL, BATCH, REJECTED, length, done)] if is_told else [])


@pytest.mark.parametrize("how", [NOT_RUN, FAILED])
def test_what_was_rejected_before_and_what_failed_says_nothing_of_it(how):
    """Others have rejected much until the run began, and have not done much otherwise since."""
    answers = TypeAnswers()
    answers.not_done(THIRD, BATCH, REJECTED, "404")
    for _ in range(20):
        answers.not_done(BIG, BATCH, REJECTED, "404")
    for number in range(9):
        answers.not_done(SMALL, BATCH, REJECTED, f"404 {number}")
    for _ in range(20):
        answers.not_done(BIG, BATCH, how, "503")
        answers.done(BIG, BATCH)
    assert told(answers) == [(SMALL, BATCH, REJECTED, 9, 20)]
    ((_, run, _),) = answers.of(SMALL)
    assert run.problem == "404 8", "what was said last"


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_a_client_that_sends_nonsense_has_no_server_blamed(share):
    """A share of the jobs no server takes. Of one run for each server at most is taken note."""
    answers, random = TypeAnswers(), Random(1)
    for _ in range(5_000):
        server = random.randrange(4)
        if random.random() < share:
            answers.not_done(server, BATCH, REJECTED, "422")
        else:
            answers.done(server, BATCH)
        assert not told(answers)
    assert len([server for server in range(4) for _ in answers.of(server)]) <= 4


def test_another_way_of_not_doing_it_is_another_run():
    answers = TypeAnswers()
    for how in (NOT_RUN, FAILED) * RUN_LENGTH:
        answers.not_done(SMALL, BATCH, how, how)
    assert told(answers) == []
    assert [(kind, run.how, run.count) for kind, run, _ in answers.of(SMALL)] == [
        (BATCH, FAILED, 1)
    ]
