"""What `dump_yaml` writes is text to readers of every version of YAML, and ids are read as they are
written."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spillover.inputs.topology_file import read_topology
from spillover.inputs.value_limits import check_size
from spillover.inputs.yaml_text import as_written, dump_yaml, parse_yaml, quoted

# As yaml.org has the types of YAML 1.1, and chapter 10 of YAML 1.2 its core schema. Y and N are of
# the former too, though PyYAML does not take them for true and false.
NO_TEXT = re.compile(
    r"|~|null|Null|NULL|<<|="
    r"|y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF"
    r"|[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+"
    r"|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+|[-+]?([0-9][0-9_]*)?\.[0-9_]*([eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?"
    r"|[-+]?[0-9]+|0o[0-7]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
)
ODD = [
    "n", "y", "no", "ON", "08", "010", "0o17", "0b1", "0x1f", "1e3", "+7", "-0", "null", "~",
    "1_000", "12:30:45", "1:30", ".inf", "-.INF", ".nan", "2001-01-01", "=", "<<", "1.10", "7",
    "yes", "Off", "true", "FALSE", ".", "-", "--", ".5", "5.", "_", "1__0", "0_8",
]  # fmt: skip


@given(st.one_of(st.sampled_from(ODD), st.text("01789_:.+-eExobnyNY~=<#'\"\n é\u2028", max_size=8)))
def test_text_is_written_so_that_no_reader_takes_it_for_anything_else(text: str) -> None:
    written = dump_yaml({"id": text, "all": [text]})
    assert parse_yaml(written) == yaml.safe_load(written) == {"id": text, "all": [text]}
    top = yaml.compose(written, Loader=yaml.BaseLoader)
    scalar = top.value[0][1]
    assert scalar.style is not None or not NO_TEXT.fullmatch(text)
    assert yaml.safe_load(f"[{quoted(text)}]") == [text]


@pytest.mark.parametrize("text", ODD)
def test_ids_are_read_as_they_are_written(text: str) -> None:
    """In quotes or not. What says that there is nothing, and what is true or false in all versions
    of YAML, is refused without."""
    if text in ("null", "~", "true", "FALSE", "-", "--"):
        return
    assert as_written(parse_yaml(text)) == text
    if re.fullmatch("[A-Za-z0-9._-]+", text):
        file = f"clusters: [{{id: {text}, servers: 1}}, {{id: z, servers: 1}}]\n"
        file += f"links: [{{between: [{text}, z]}}]\n"
        assert read_topology(file, "f", "f").cluster_ids == (text, "z")


LONG = "x" * 1_000_000
TOO_MUCH = {
    "fields": ("{" + ",".join(f"k{n}: 1" for n in range(60_000)) + "}", "line 1: .*1000 fields"),
    "entries": ("- 1\n" * 20_000, "line 10001: .*10000 entries"),
    "values": (f"- [{'a,' * 9_999}]\n" * 11, "line 10: .*100000 values"),
    "depth": ("[" * 1_000_000, "line 1: .*32 lists and mappings"),
    "depth in lines": ("- " * 500_000, "line 1: .*32 lists and mappings"),
    "aliases": (f"a: &a {LONG}\nb: *a\n", "line 2: .*1048576 characters once aliases"),
    "characters": (LONG * 2, "expected at most 1048576 characters, got 2000000"),
    "directives": ("%TAG !a! x\n" * 50_000 + "---\n", "8 lines that begin with %"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_is_too_much_is_refused_in_one_line(name: str) -> None:
    """And where it becomes too much: what comes after that costs nothing."""
    text, expected = TOO_MUCH[name]
    with pytest.raises(ValueError, match=expected) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)


def test_aliases_stand_for_values_and_lists_before_them() -> None:
    text = "a: &list [1, &name x]\nb: *list\nc: *name\n"
    assert parse_yaml(text) == {"a": [1, "x"], "b": [1, "x"], "c": "x"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({str(n): 1 for n in range(1_001)}, "1000 fields"),
        ([1] * 10_001, "10000 entries"),
        ([[1] * 9_999] * 11, "100000 values"),
        (json.loads("[" * 33 + "]" * 33), "32 lists and mappings"),
    ],
)
def test_json_has_the_limits_of_yaml(value: object, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        check_size(value)


def test_what_is_within_the_limits_has_the_size_of_neither() -> None:
    check_size({"clusters": [{"id": "a", "routes": [[1] * 1_000] * 90}]})
    check_size(json.loads("[" * 32 + "]" * 32))
