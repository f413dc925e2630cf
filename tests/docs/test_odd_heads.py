"""The table in docs/http.md of what is taken and refused of requests and answers that are a little
off: each of its rows, by examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spillover.live.handlers.proxy.onward import check_tunnel
from spillover.live.http1.framing import HeadBytes, Malformed
from spillover.live.http1.heads import RefusedRequest, read_answer, read_request
from support.odd_heads import EXAMPLES

PAGE = Path(__file__).parents[2] / "services" / "docs" / "http.md"
ROW = re.compile(r"\| (.+) \| (.+) \| (.+) \|")
NEVER = "-"


def table():
    """Of each row what becomes of such an answer, and of such a request."""
    lines = PAGE.read_text().partition("| written so |")[2].partition("\n\n")[0].splitlines()[2:]
    return {row[1]: (row[2], row[3]) for row in map(ROW.fullmatch, lines) if row}


ROWS = table()


def read(raw, step, *, of_answer):
    """The head and the body of what comes in pieces of this size, as they are read."""
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
            if answer is not None:
                break
            if not data:
                break
        if answer is not None and data and not body.done:
            whole += body.feed(data)
    assert answer is not None
    assert body.done
    return answer, whole


def test_each_row_has_examples():
    assert list(ROWS) == list(EXAMPLES)
    for row, both in ROWS.items():
        for told, examples in zip(both, EXAMPLES[row], strict=True):
            assert bool(examples) == (told != NEVER), row


@pytest.mark.parametrize("step", [1, 5, 10_000])
@pytest.mark.parametrize("row", EXAMPLES)
def test_answers_are_taken_or_not_as_the_table_says(row, step):
    for raw in EXAMPLES[row][0]:
        if ROWS[row][0].startswith("502"):
            with pytest.raises(Malformed):
                read(raw, step, of_answer=True)
        else:
            assert read(raw, step, of_answer=True)[1] == b"abc", raw


@pytest.mark.parametrize("step", [1, 5, 10_000])
@pytest.mark.parametrize("row", EXAMPLES)
def test_requests_are_taken_or_not_as_the_table_says(row, step):
    told = ROWS[row][1]
    for raw in EXAMPLES[row][1]:
        if told[:1].isdigit():
            with pytest.raises(Malformed) as caught:
                read(raw, step, of_answer=False)
            error = caught.value
            assert told.startswith(
                str(error.status if isinstance(error, RefusedRequest) else 400)
            ), raw
        else:
            read(raw, step, of_answer=False)
