"""When a request is sent again, and where: rules without sockets, time passed in."""

import random

import pytest

from spillover.client.nodes import Nodes
from spillover.client.retrying import (
    RequestAttempts,
    Retries,
    RetryBudget,
)
from spillover.model.errors import (
    Failed,
    InputError,
    OutcomeUnknown,
    Refused,
    Rejected,
    Unreachable,
)

A, B, C = "http://a", "http://b", "http://c"


class Bed:
    """Attempts at one request whose first went to A, in virtual time."""

    def __init__(self, *urls, retries=None, until_s=60.0, repeatable=True):
        self.now_s = 0.0
        self.retries = retries or Retries()
        self.nodes = Nodes(urls or (A, B), random.Random(1))
        self.budget = RetryBudget(self.retries, 0.0)
        self.attempts = RequestAttempts(
            self.nodes,
            self.budget,
            self.retries,
            random.Random(2),
            until_s=until_s,
            repeatable=repeatable,
        )
        self.asked = [self.nodes.choose(0.0)]

    def fail(self, error, *, answered=None):
        """The attempt under way ends so, and the next one begins when it may."""
        answered = isinstance(error, Refused) if answered is None else answered
        self.attempts.failed(self.asked[-1], error, self.now_s, answered=answered)
        while not isinstance(step := self.attempts.choose(self.now_s), str):
            self.now_s += step
        self.asked.append(step)
        return step

    def fail_always(self, error):
        """Every attempt ends so. Gives the times of those that began after the first."""
        begun_s = []
        with pytest.raises(type(error)) as end:
            self._fail_on(error, begun_s)
        return end.value, begun_s

    def _fail_on(self, error, begun_s):
        while True:
            self.fail(error)
            begun_s.append(self.now_s)


def unreached():
    return Unreachable("nobody there")


def unknown():
    return OutcomeUnknown("no answer")


def full(retry_after_s=None, reason="queue_full"):
    return Refused("full", reason, retry_after_s)


def test_what_surely_did_not_run_goes_to_the_next_node_at_once():
    for error in (unreached(), full(5.0), full(reason="draining")):
        bed = Bed()
        assert bed.fail(error) == B
        assert bed.now_s == 0.0


def test_when_all_were_asked_there_is_a_wait_and_an_end():
    bed = Bed()
    end, begins = bed.fail_always(unreached())
    assert "none of 2 nodes" in str(end)
    assert len(bed.asked) == 2 * bed.retries.rounds
    assert begins[0] == 0.0 < begins[1] == begins[2] < begins[3]
    assert bed.now_s < 2.0


def test_who_was_refused_by_one_and_did_not_reach_the_other_is_refused():
    bed = Bed(retries=Retries(rounds=1))
    bed.fail(unreached())
    with pytest.raises(Refused) as error:
        bed.fail(full(7.0))
    assert error.value.retry_after_s == 7.0
    assert error.value.surely_did_not_run


def test_the_next_round_waits_for_the_first_node_that_wants_to_be_asked():
    bed = Bed()
    bed.fail(full(7.0))
    bed.fail(full(3.0))
    assert 3.0 <= bed.now_s <= 3.2


@pytest.mark.parametrize(
    ("waits_s", "shortest"), [((3.0, 2.0), 1), ((2.0, 3.0), 0), ((None, 9.0), 1), ((0.0, 9.0), 1)]
)
def test_of_nodes_that_refused_the_one_that_takes_it_soonest_is_told_of(waits_s, shortest):
    bed = Bed(retries=Retries(rounds=1))
    errors = [Refused("full", "queue_full", wait_s) for wait_s in waits_s]
    bed.fail(errors[0])
    with pytest.raises(Refused) as error:
        bed.fail(errors[1])
    assert error.value is errors[shortest]


def test_nothing_is_waited_for_beyond_the_deadline():
    bed = Bed(A, until_s=5.0)
    with pytest.raises(Refused):
        bed.fail(full(5.0))
    assert bed.now_s == 0.0


def test_what_may_have_run_goes_to_the_same_node_alone():
    bed = Bed()
    assert bed.fail(unknown()) == A
    assert bed.nodes.choose(0.0) == B  # others do not ask it meanwhile
    for _ in range(5):
        assert bed.fail(unreached()) == A
    assert bed.fail(full(1.0, "draining")) == A
    assert bed.attempts.home == A


def test_a_node_that_does_not_come_back_leaves_the_outcome_unknown():
    bed = Bed()
    bed.fail(unknown())
    with pytest.raises(OutcomeUnknown) as error:
        bed._fail_on(unreached(), [])
    assert not error.value.surely_did_not_run
    assert bed.retries.comeback_s - 1.0 <= bed.now_s < bed.retries.comeback_s
    assert set(bed.asked) == {A}


WAITS = "waits"


@pytest.mark.parametrize(
    ("clusters", "errors", "asked"),
    [
        ({}, [unknown, unreached], [A, WAITS, A, WAITS, A]),
        ({A: b"x"}, [unknown, unreached], [A, WAITS, A, WAITS, A]),
        ({A: b"x", B: b"y", C: b""}, [unknown, unreached], [A, WAITS, A, WAITS, A]),
        ({A: b"", B: b"", C: b""}, [unknown, unreached], [A, WAITS, A, WAITS, A]),
        ({B: b"x", C: b"x"}, [unknown, unreached], [A, WAITS, A, WAITS, A]),
        ({A: b"x", B: b"x", C: b"y"}, [unknown], [A, B]),
        ({A: b"x", B: b"y", C: b"x"}, [unknown], [A, C]),
        ({A: b"x", B: b"x", C: b"x"}, [unknown, unknown, unreached], [A, B, C, WAITS, B]),
        ({A: b"x", B: b"x", C: b"x"}, [unknown, full, full], [A, B, C, WAITS, B]),
        ({A: b"x", B: b"y", C: b"y"}, [unreached, unknown, unreached], [A, B, C, WAITS, B]),
    ],
)
def test_what_may_have_run_goes_on_at_once_at_another_node_of_its_cluster(clusters, errors, asked):
    """After that to all of them again, and never to a node of which that is not known."""
    bed = Bed(A, B, C)
    for url, cluster in clusters.items():
        bed.nodes.of_cluster(url, cluster)
    came = [A]
    for error in errors:
        before_s = bed.now_s
        went_to = bed.fail(error())
        came += [went_to] if bed.now_s == before_s else [WAITS, went_to]
    assert came == asked


def test_a_cluster_of_which_no_node_answers_leaves_the_outcome_unknown():
    bed = Bed(A, B, C)
    for url in (A, B):
        bed.nodes.of_cluster(url, b"x")
    bed.fail(unknown())
    with pytest.raises(OutcomeUnknown):
        bed._fail_on(unreached(), [])
    assert bed.now_s < bed.retries.comeback_s
    assert set(bed.asked) == {A, B}


def test_what_is_to_run_at_most_once_goes_to_no_other_node_of_the_cluster():
    bed = Bed(repeatable=False)
    for url in (A, B):
        bed.nodes.of_cluster(url, b"x")
    with pytest.raises(OutcomeUnknown):
        bed.fail(unknown())


def test_what_is_to_run_at_most_once_is_not_sent_again_once_it_may_have_run():
    bed = Bed(repeatable=False)
    assert bed.fail(unreached()) == B
    with pytest.raises(OutcomeUnknown):
        bed.fail(unknown())


@pytest.mark.parametrize(
    "error", [Failed("no", "handler_failed"), Rejected("no", 422, "invalid")], ids=["failed", "4xx"]
)
def test_what_is_an_answer_ends_it(error):
    bed = Bed()
    with pytest.raises(type(error)):
        bed.fail(error, answered=True)


def test_a_draining_node_is_passed_over_and_a_full_one_is_not():
    bed = Bed()
    bed.fail(full(9.0, "draining"))
    assert bed.nodes.choose(1.0) == B
    bed = Bed()
    bed.fail(full(9.0))
    assert bed.nodes.choose(1.0) == A


def test_retries_that_reach_nodes_are_a_share_of_requests_and_a_floor():
    retries = Retries(share=0.2, floor_per_s=10.0)
    budget = RetryBudget(retries, 0.0)
    granted = 0
    for request in range(10_000):  # 1000 a second, each wants a retry
        budget.earn()
        granted += budget.spend(request / 1000)
    assert granted == pytest.approx(0.2 * 10_000 + 10.0 * 10 + 10, abs=2)
    while budget.spend(10.0):
        granted += 1
    assert not budget.spend(10.05)
    assert budget.spend(10.15)


def test_without_a_token_a_retry_waits_and_not_beyond_its_time():
    bed = Bed(retries=Retries(share=0.0, floor_per_s=1.0, rounds=99))
    assert bed.budget.spend(0.0)
    assert bed.fail(full()) == B
    assert 1.0 <= bed.now_s < 5.0
    bed = Bed(retries=Retries(share=0.0, floor_per_s=0.0), until_s=3.0)
    with pytest.raises(Refused):
        bed.fail(full())
    assert bed.now_s < 3.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("share", -0.1),
        ("share", "0.2"),
        ("floor_per_s", float("nan")),
        ("rounds", 0),
        ("rounds", "5"),
        ("comeback_s", float("inf")),
    ],
)
def test_what_cannot_be_meant_is_refused(field, value):
    with pytest.raises(InputError, match=field):
        Retries(**{field: value})
