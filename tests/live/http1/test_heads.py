"""How fields of a head are written: whoever said them, no value can be read as other lines."""

from __future__ import annotations

import pytest

from spillover.live.http1.written import head_lines


def test_fields_are_lines():
    assert head_lines([(b"a", b"1"), (b"B", b"x\ty \xff")]) == b"a: 1\r\nB: x\ty \xff\r\n"
    assert head_lines([]) == b""


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n", b"\0", b"\x1b", b"\r\nX-Evil: 1\r\n\r\n"])
@pytest.mark.parametrize("field", [(b"a%b", b"1"), (b"a", b"1%b"), (b"a", b"%bb")])
def test_no_field_holds_control_characters(field, end):
    name, value = (one.replace(b"%b", end) for one in field)
    with pytest.raises(ValueError, match="fields of a head"):
        head_lines([(b"fine", b"1"), (name, value)])
