"""What the lease simulation reckons from tenures: against a count of every millisecond."""

from hypothesis import given
from hypothesis import strategies as st

from spillover.sim.leases.watch import TenureWatch

END_MS = 40
SPANS = st.lists(
    st.tuples(st.integers(0, END_MS), st.integers(0, 20), st.integers(0, 20), st.integers(0, 2)),
    max_size=6,
)


def watch_of(spans):
    watch = TenureWatch(1)
    for from_ms, length, entitled, node in sorted(spans):
        tenure = watch.started(0, node, 0, float(from_ms))
        tenure.to_ms = float(min(from_ms + length, END_MS))
        tenure.fenced_ms = float(min(from_ms + entitled, END_MS))
    return watch


def running(spans, instant, length_of):
    return sum(span[0] <= instant < min(span[0] + length_of(span), END_MS) for span in spans)


@given(SPANS)
def test_reckoning_agrees_with_counting_instants(spans):
    """Standstills, double ownership and its entitled part."""
    watch = watch_of(spans)
    ran = [running(spans, instant, lambda span: span[1]) for instant in range(END_MS)]
    might = [
        running(spans, instant, lambda span: min(span[1], span[2])) for instant in range(END_MS)
    ]
    longest = gap = 0
    for count in ran:
        gap = 0 if count else gap + 1
        longest = max(longest, gap)
    assert watch.unowned_ms_max(float(END_MS)) == longest
    assert watch.double_owned_ms() == sum(count >= 2 for count in ran)
    assert watch.double_entitled_ms() == sum(count >= 2 for count in might)


def test_moves_are_changes_of_the_owner():
    """A first claim is none, nor is a new start on the same node."""
    watch = TenureWatch(2)
    for node, now_ms in ((0, 1.0), (0, 2.0), (1, 3.0), (0, 4.0)):
        watch.started(0, node, 0, now_ms).to_ms = now_ms
    assert watch.moves_ms == [3.0, 4.0]
    assert watch.owners() == [0, None]


def test_a_death_ends_what_ran_there_and_nothing_else():
    """What had ended before keeps its end."""
    watch = TenureWatch(2)
    ended = watch.started(0, 0, 0, 0.0)
    ended.to_ms = 1.0
    dying, other = watch.started(0, 0, 0, 2.0), watch.started(1, 1, 0, 0.0)
    watch.died(0, 5.0)
    watch.end(9.0)
    assert (ended.to_ms, dying.to_ms, other.to_ms) == (1.0, 5.0, 9.0)
