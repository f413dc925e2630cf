"""What reports and questions for work say of groups of types, as bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.live.overflow import report_lines
from spillover.live.overflow.wire import MalformedMessage
from spillover.model.load import GroupLoad, LoadNow, LoadReport
from spillover.model.type_groups import GROUPS_MAX

shares = st.integers(0, 64).map(lambda steps: steps / 64)
groups = st.builds(
    GroupLoad,
    st.sampled_from(["default", "llm", "ä b", "x" * 100]),
    shares,
    shares,
    st.integers(0, 1000),
    st.booleans(),
    st.integers(-1000, 1_000_000),
    shares,
    st.just(0.125),
    shares,
)
LOAD = LoadNow(1, 2, 3, 0.5, accepting=True)


def report(*told):
    return LoadReport(1, 1, 1.0, 1.0, 0, 1, True, groups=told)


@given(st.lists(groups, max_size=GROUPS_MAX))
def test_a_report_tells_of_groups(told):
    """As they were."""
    line = report_lines.encode_report(report(*told))
    assert report_lines.decode_line(line[:-1]).groups == tuple(told)


def test_a_question_names_the_group():
    """And so does the answer that there is nothing."""
    asked = report_lines.decode_line(report_lines.encode_ask(LOAD, "llm")[:-1])
    none = report_lines.decode_line(report_lines.encode_no_work(LOAD, "llm")[:-1])
    assert (asked, none) == (
        report_lines.Question(LOAD, "llm"),
        report_lines.NothingToDo(LOAD, "llm"),
    )


GOOD = ["llm", 1.0, 1.0, 2, True, -1, 0.0, 20.0, 1.0]


@pytest.mark.parametrize(
    "told",
    [
        "llm",
        ["llm"],
        [GOOD[:-1]],
        [GOOD] * (GROUPS_MAX + 1),
        [["", *GOOD[1:]]],
        [["x" * 101, *GOOD[1:]]],
        [["a\nb", *GOOD[1:]]],
        [["llm", 1.5, *GOOD[2:]]],
        [[*GOOD[:3], -1, *GOOD[4:]]],
        [[*GOOD[:5], 2**40, *GOOD[6:]]],
        [[*GOOD[:-1], -0.1]],
    ],
)
def test_groups_that_are_malformed_are_refused(told):
    """As any other field: the report is not half believed."""
    line = json.loads(report_lines.encode_report(report())) | {"groups": told}
    with pytest.raises(MalformedMessage):
        report_lines.decode_line(json.dumps(line).encode())
    line["groups"] = [GOOD] * GROUPS_MAX
    assert len(report_lines.decode_line(json.dumps(line).encode()).groups) == GROUPS_MAX
