"""What is written over TLS, in as few records as it fits in."""

import math

from hypothesis import given
from hypothesis import strategies as st

from spillover.live.engine.write_batch import RECORD_BYTES, filling_records

AROUND = st.sampled_from([0, 1, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 70_000])
SIZES = st.lists(AROUND | st.integers(0, 400), min_size=1, max_size=4)


@given(SIZES)
def test_the_same_bytes_in_as_few_records_as_they_fit_in(sizes):
    parts = tuple(bytes([65 + number]) * size for number, size in enumerate(sizes))
    filled = filling_records(parts)
    assert b"".join(filled) == b"".join(parts)
    records = sum(math.ceil(len(part) / RECORD_BYTES) for part in filled)
    assert records == math.ceil(sum(sizes) / RECORD_BYTES)


def test_a_long_last_part_is_not_copied():
    last = memoryview(b"x" * 70_000)
    first, rest = filling_records((b"head", last))
    assert len(first) == RECORD_BYTES
    assert rest.obj is last.obj
