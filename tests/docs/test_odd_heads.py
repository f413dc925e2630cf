"""What is taken and refused of requests and answers that are a little off: each rule by examples,
and the table in docs/http.md by the rules."""

from pathlib import Path

import pytest

from spillover.live.handlers.proxy.onward import check_tunnel
from spillover.live.http1.framing import HeadBytes
from spillover.live.http1.heads import read_answer, read_request
from spillover.live.http1.rules import NOT_THERE, Malformed, Rule
from support.odd_heads import EXAMPLES

PAGE = Path(__file__).parents[2] / "services" / "docs" / "http.md"


def read(raw, step, *, of_answer):
    """The head and the body of what comes in pieces of this size, as they are read; larger ones of
    what is long."""
    step = max(step, len(raw) // 100)
    heads, answer, body, whole = HeadBytes(of_answer=of_answer), None, None, b""
    for start in range(0, len(raw), step):
        data = raw[start : start + step]
        while answer is None and data and (found := heads.feed(data)) is not None:
            head, data = found
            if not of_answer:
                answer = read_request(head)
                check_tunnel(answer)
                body = answer.body()
            elif (told := read_answer(head, "GET")).status >= 200:
                answer, body = told, told.body
            heads = HeadBytes(of_answer=of_answer)
        if answer is not None and data and not body.done:
            whole += body.feed(data)
    assert answer is not None
    assert body.done
    return answer, whole


def refused_by(raw, step, *, of_answer):
    with pytest.raises(Malformed) as caught:
        read(raw, step, of_answer=of_answer)
    assert (
        "expected" in str(caught.value)
        or "without being asked" in str(caught.value)
        or ("not passed through" in str(caught.value))
    ), raw
    return caught.value


def row(rule):
    """A rule as the page has it."""
    of_request = f"{rule.of_request}; {rule.elsewhere}" if rule.elsewhere else rule.of_request
    return f"| {rule.written} | {rule.of_answer} | {of_request} |"


def test_the_page_has_each_rule_and_no_other():
    table = PAGE.read_text(encoding="utf-8").partition("| written so |")[2].partition("\n\n")[0]
    assert table.splitlines()[2:] == [row(rule) for rule in Rule]


def test_each_rule_has_examples():
    assert list(EXAMPLES) == list(Rule)
    for rule, (answers, requests) in EXAMPLES.items():
        assert bool(answers) == (rule.of_answer != NOT_THERE), rule
        assert bool(requests) == (rule.of_request != NOT_THERE), rule


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize("rule", EXAMPLES)
def test_answers_are_taken_or_not_as_the_rule_says(rule, step):
    by = set()
    for raw in EXAMPLES[rule][0]:
        if isinstance(rule.of_answer, int):
            error = refused_by(raw, step, of_answer=True)
            assert isinstance(error.rule.of_answer, int), raw
            by.add(error.rule)
        else:
            assert read(raw, step, of_answer=True)[1] == b"abc", raw
    assert not by or by & {rule, Rule.FIRST_LINE}


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize("rule", EXAMPLES)
def test_requests_are_taken_or_not_as_the_rule_says(rule, step):
    by = set()
    for raw in EXAMPLES[rule][1]:
        if isinstance(rule.of_request, int):
            error = refused_by(raw, step, of_answer=False)
            assert error.status == rule.of_request, raw
            by.add(error.rule)
        else:
            read(raw, step, of_answer=False)
    assert not by or rule in by
