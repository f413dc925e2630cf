"""What a home remembers: by name, within windows of time, number and bytes, and no longer.

The twin is a list of all entries ever opened, looked through from its end.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from spillover.core.overflow.idempotency import (
    BRIEF_LIMIT,
    BRIEF_LIMIT_BYTES,
    ENTRY_BYTES,
    EXPIRED,
    NO_ROOM,
    NODE_ENDED,
    IdempotencyRecord,
    IdempotencyTable,
)
from spillover.model.request import Answer, Outcome, Request
from support.few import examples

TTL_S = 10.0


def entry_of(name, ref=1, *, body=b"body", asynchronous=False):
    request = Request(name, keyed=body is not None, work=None)
    return IdempotencyRecord(request, ref, body, asynchronous=asynchronous)


def answer_of(size_bytes=0, outcome=Outcome.DONE):
    return Answer(outcome, ("a",), result=b"x" * size_bytes if size_bytes else None)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("where", ["result", "upstream_body"])
def test_what_is_kept_is_reckoned_wherever_it_stands(where, asynchronous):
    """What a service said with its refusal is as large as what it gives."""
    table = IdempotencyTable(TTL_S, 10, 10**6)
    request = Request("r", keyed=False, work=None)
    entry = IdempotencyRecord(request, 1, None, asynchronous=asynchronous)
    table.open(entry)
    table.settle(entry, Answer(Outcome.FAILED, ("a",), **{where: b"x" * 5000}), 0.0)
    assert 5000 < table.kept_bytes < 7000


AGAIN = (Outcome.FAILED, Outcome.EXPIRED, Outcome.UNKNOWN)


class Twin:
    """One entry as the model sees it: under way, or ended at a time; dropped or not."""

    def __init__(self, entry, *, lasting, asynchronous):
        self.entry = entry
        self.lasting = lasting
        self.wanted = asynchronous
        self.ended_s = None
        self.size_bytes = 0
        self.outcome = None
        self.dropped = False


class NamesUnderTest(RuleBasedStateMachine):
    """A few names, used again and again."""

    @initialize(limit=st.integers(0, 4), limit_kib=st.integers(1, 8))
    def build(self, limit, limit_kib):
        self.limit, self.limit_bytes = limit, limit_kib * 1024
        self.names = IdempotencyTable(TTL_S, limit, self.limit_bytes)
        self.twins = []
        self.ended = 0
        self.now_s = 100.0

    def twin(self, name):
        """The newest of this name that is not forgotten; withdrawn ones are not in the list, and
        what had another run after it is dropped."""
        for twin in reversed(self.twins):
            if twin.entry.name == name:
                is_over = twin.ended_s is not None and self.now_s >= twin.ended_s + TTL_S
                return None if twin.dropped or is_over else twin
        return None

    def kept(self):
        """Ended ones in the lasting window, oldest first."""
        ended = [t for t in self.twins if t.ended_s is not None and t.lasting and not t.dropped]
        return sorted(ended, key=lambda twin: twin.order)

    def under_way(self):
        return [twin for twin in self.twins if twin.ended_s is None]

    @rule(name=st.sampled_from("xyz"), keyed=st.booleans(), asynchronous=st.booleans())
    def a_request_comes(self, name, keyed, asynchronous):
        before, entry = self.twin(name), self.names.find(name, self.now_s)
        assert entry is (before and before.entry)
        if entry is not None:
            runs_again = before.outcome in AGAIN
            assert entry.may_run_again == runs_again
            if not (runs_again and before.lasting and keyed):
                return
        self.open(name, keyed=keyed, asynchronous=asynchronous)

    def open(self, name, *, keyed, asynchronous):
        entry = entry_of(name, body=b"body" if keyed else None, asynchronous=asynchronous)
        self.names.open(entry)
        self.twins.append(Twin(entry, lasting=keyed or asynchronous, asynchronous=asynchronous))
        self.sweep()
        held = {twin.entry.name for twin in self.twins if not twin.dropped}
        assert len(self.names) == len(held)

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def one_is_accepted(self, data):
        """Mostly at once, but nothing depends on when."""
        twin = data.draw(st.sampled_from(self.under_way()))
        self.names.accept(twin.entry)
        self.drop_before(twin)
        self.sweep()

    def drop_before(self, twin):
        """The run before of the same name, if this is another one."""
        for other in self.kept():
            other.dropped |= other is not twin and other.entry.name == twin.entry.name

    @precondition(lambda self: self.under_way())
    @rule(
        data=st.data(),
        size_bytes=st.sampled_from([0, 1, 1000, 3000, 9000]),
        outcome=st.sampled_from(Outcome),
    )
    def one_ends(self, data, size_bytes, outcome):
        twin = data.draw(st.sampled_from(self.under_way()))
        self.drop_before(twin)
        self.names.settle(twin.entry, answer_of(size_bytes, outcome), self.now_s)
        twin.ended_s, twin.size_bytes = self.now_s, ENTRY_BYTES + size_bytes
        twin.outcome = outcome
        self.ended += 1
        twin.order = self.ended
        while len(self.kept()) > self.limit or self.bytes_kept() > self.limit_bytes:
            self.kept()[0].dropped = True
        self.sweep()

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def one_is_refused(self, data):
        """What was known of the name before is known again, if it is still kept."""
        twin = data.draw(st.sampled_from(self.under_way()))
        self.names.withdraw(twin.entry)
        self.twins.remove(twin)
        self.sweep()

    @precondition(lambda self: self.twins)
    @rule(data=st.data())
    def one_is_fetched(self, data):
        """Also one that is forgotten meanwhile, by somebody who still holds it; or too early."""
        twin = data.draw(st.sampled_from(self.twins))
        self.names.fetch(twin.entry)
        twin.wanted = twin.wanted and twin.ended_s is None

    @rule(step_s=st.sampled_from([0.5, 4.0, 9.5, 10.0]))
    def time_passes(self, step_s):
        self.now_s += step_s

    def bytes_kept(self):
        return sum(twin.size_bytes for twin in self.kept())

    def sweep(self):
        """Nobody finds what is too old; that it is gone for good shows when the next one comes."""
        for twin in self.twins:
            if twin.ended_s is not None and self.now_s >= twin.ended_s + TTL_S:
                twin.dropped = True
        self.names.expire(self.now_s)
        self.names.check()
        assert self.names.unfetched == sum(twin.wanted for twin in self.kept())
        for name in "xyz":
            twin = self.twin(name)
            assert self.names.find(name, self.now_s) is (twin and twin.entry)


TestNamesUnderTest = NamesUnderTest.TestCase
TestNamesUnderTest.settings = settings(max_examples=examples(120), stateful_step_count=50)


def test_what_was_given_to_its_client_is_kept_to_be_asked_about():
    """The last so many, however many there were; they do not push out what came with a name."""
    names = IdempotencyTable(TTL_S, 2, 10**6)
    keyed = entry_of("keyed")
    names.open(keyed)
    names.settle(keyed, answer_of(), 0.0)
    for number in range(BRIEF_LIMIT + 50):
        entry = entry_of(f"n{number}", body=None)
        names.open(entry)
        names.settle(entry, answer_of(100), 1.0)
    names.check()
    assert len(names) == BRIEF_LIMIT + 1
    assert names.find("keyed", 1.0) is keyed
    assert names.find("n49", 1.0) is None
    assert names.find("n50", 1.0) is not None


def test_large_answers_without_a_name_go_earlier():
    """Their number alone would let ten thousand of any size pile up."""
    names = IdempotencyTable(TTL_S, 10, 1024)
    size_bytes = BRIEF_LIMIT_BYTES // 4
    for number in range(6):
        entry = entry_of(f"n{number}", number, body=None)
        names.open(entry)
        names.settle(entry, answer_of(size_bytes), 0.0)
        names.check()
    assert [names.find(f"n{number}", 0.0) is not None for number in range(6)] == [
        *[False] * 3,
        *[True] * 3,
    ]


def test_a_run_that_is_refused_leaves_what_was_known_before():
    """To be asked for, and to be fetched, for as long as it would have been kept anyway."""
    names = IdempotencyTable(TTL_S, 10, 10**6)
    failed = entry_of("k", asynchronous=True)
    names.open(failed)
    names.settle(failed, answer_of(outcome=Outcome.FAILED), 0.0)
    again = entry_of("k", 2)
    names.open(again)
    assert names.find("k", 5.0) is again
    names.withdraw(again)
    assert names.find("k", 5.0) is failed
    assert names.unfetched == 1
    assert names.find("k", TTL_S) is None
    names.expire(TTL_S)
    names.check()
    assert (len(names), names.unfetched) == (0, 0)


@pytest.mark.parametrize("refused", [False, True])
def test_an_answer_that_leaves_the_window_while_its_name_runs_again(refused):
    """The run under way stays known; refused, there is nothing to go back to."""
    names = IdempotencyTable(TTL_S, 1, 10**6)
    failed, again, other = entry_of("k"), entry_of("k", 2), entry_of("other", 3)
    names.open(failed)
    names.settle(failed, answer_of(outcome=Outcome.EXPIRED), 0.0)
    names.open(again)
    names.open(other)
    names.settle(other, answer_of(), 1.0)
    assert names.find("k", 1.0) is again
    if refused:
        names.withdraw(again)
        assert names.find("k", 1.0) is None
    else:
        names.settle(again, answer_of(), 2.0)
        assert names.find("k", 2.0) is again
        assert names.find("other", 2.0) is None
    names.check()


def test_answers_that_are_dropped_before_anybody_has_come_for_them_are_counted_by_why():
    names = IdempotencyTable(TTL_S, 2, 10**6)
    entries = [entry_of(name, asynchronous=True) for name in ("old", "seen", "too many", "new")]
    for now_s, entry in enumerate(entries[:2]):
        names.open(entry)
        names.settle(entry, answer_of(), now_s)
    names.fetch(entries[1])
    assert names.unfetched_ids() == ["old"]
    names.expire(TTL_S + 1.0)
    for entry in entries[2:]:
        names.open(entry)
        names.settle(entry, answer_of(), 20.0)
    assert names.unfetched_ids() == ["too many", "new"]
    names.keep(TTL_S, 1)
    assert names.lost == {EXPIRED: 1, NO_ROOM: 1, NODE_ENDED: 0}
