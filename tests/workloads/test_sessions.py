"""Traces of prompts: what is read, which prompts are of one session, and what is refused."""

import json

import pytest

from spillover.model.errors import InputError
from spillover.workloads.sessions import read_prompts


def line(time_ms, blocks, tokens=None, answer=10):
    tokens = 512 * len(blocks) if tokens is None else tokens
    fields = {"timestamp": time_ms, "input_length": tokens, "output_length": answer}
    return json.dumps({**fields, "hash_ids": blocks})


@pytest.fixture
def read(tmp_path):
    def read_lines(*lines):
        path = tmp_path / "prompts.jsonl"
        path.write_text("\n".join(lines) + "\n" if lines else "", encoding="utf-8")
        return read_prompts(path)

    return read_lines


def test_prompts_have_their_full_blocks_in_seconds(read):
    first, second = read(line(0, [1, 2], tokens=600), line(3_000, [1, 3, 4], answer=0))
    assert first[:4] == (0.0, 600, 10, (1,))
    assert second[:4] == (3.0, 1536, 1, (1, 3, 4))


def test_a_prompt_goes_on_with_the_session_that_it_shares_half_with(read):
    """All begin with the same block, which says nothing."""
    prompts = read(
        line(0, [0, 1, 2]),
        line(1, [0, 5, 6]),
        line(2, [0, 1, 2, 3, 4]),
        line(3, [0, 1, 7, 8, 9]),
        line(4, [0, 1, 2, 3, 10]),
        line(5, [0]),
    )
    assert [one.session for one in prompts] == [1, 2, 1, 3, 1, 4]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "expected prompts at two different times"),
        ([line(5, [1]), line(5, [1])], "expected prompts at two different times"),
        (["{"], "line 1: expected one JSON object"),
        (["[]"], "line 1: expected one JSON object"),
        ([line(0, [1]), line(1, [1], tokens=0)], "line 2: input_length: expected a whole number"),
        ([line(0, [1]), line(-1, [1])], "line 2: timestamp: expected a whole number"),
        ([line(2, [1]), line(1, [1])], "line 2: expected times in order"),
        ([line(0, ["x"])], "line 1: hash_ids: expected a list of whole numbers"),
        (['{"timestamp": 1, "input_length": 9}'], "line 1: hash_ids: expected"),
        ([line(0, [1], answer=1.5)], "line 1: output_length: expected a whole number"),
        (["x" * 1_000_001], "line 1: expected at most 1000000 bytes a line"),
    ],
)
def test_a_bad_line_is_told_in_one_line(read, lines, told):
    with pytest.raises(InputError) as caught:
        read(*lines)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match="expected a readable file"):
        read_prompts(tmp_path / "none.jsonl")
