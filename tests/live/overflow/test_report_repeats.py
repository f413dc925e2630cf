"""Which reports are left out, against a twin that looks at all that was ever said."""

from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow.reporting import HEARTBEAT_S
from spillover.live.overflow.report_repeats import SAID_TIMES, Repeats
from spillover.model.load import LoadReport

PERIOD_S = 0.05
ROUNDING_S = 1e-9


def report_of(sequence, queue_length):
    return LoadReport(
        epoch=1,
        sequence=sequence,
        accept_probability=1.0,
        neighborhood_accept_probability=1.0,
        queue_length=queue_length,
        servers=2,
        accepting=True,
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.sampled_from((0, 0, 0, 0, 1)), st.floats(0.0, 0.4)),
        st.tuples(st.just("period"), st.just(0), st.just(PERIOD_S)),
        st.tuples(st.just("listener"), st.just(0), st.just(0.0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_what_is_left_out_was_said_often_and_lately(steps):
    """And everything else is said: the twin keeps all that was said since somebody came to listen,
    and looks back."""
    repeats, said, now_s = Repeats(PERIOD_S), [], 0.0
    for sequence, (what, queue_length, after_s) in enumerate(steps):
        now_s += after_s
        if what == "listener":
            repeats.start_over()
            said.clear()
            continue
        newest = said[-SAID_TIMES:]
        known = len(newest) == SAID_TIMES and {length for length, _ in newest} == {queue_length}
        is_due = repeats.is_due(report_of(sequence, queue_length), now_s)
        if not known:
            assert is_due
        else:
            assert is_due or now_s - newest[-1][1] <= HEARTBEAT_S - PERIOD_S + ROUNDING_S
            assert not is_due or now_s - newest[-1][1] >= HEARTBEAT_S - PERIOD_S - ROUNDING_S
        if is_due:
            said.append((queue_length, now_s))


def test_signs_of_life_are_never_further_apart_than_beats():
    """However many reports are alike, and whatever the period, up to where beats are sent."""
    for period_s in (0.01, 0.05, 0.07, 0.2, 0.25):
        repeats, said_s = Repeats(period_s), 0.0
        for tick in range(1, 200):
            now_s = tick * period_s
            if repeats.is_due(report_of(tick, 0), now_s):
                assert now_s - said_s <= HEARTBEAT_S + ROUNDING_S
                said_s = now_s
        assert 200 * period_s - said_s <= HEARTBEAT_S + period_s


def test_reports_that_are_rarer_than_beats_are_all_said():
    repeats = Repeats(1.0)
    assert all(repeats.is_due(report_of(second, 0), float(second)) for second in range(20))
