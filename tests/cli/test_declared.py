"""What commands refuse of their options, in one line and before anything is done. No command is run
here.
"""

from __future__ import annotations

import pytest

from spillover.cli import main
from spillover.cli.commands import make_parser

URL = "http://h:1"
NODE = ("node", "--topology", "ring5", "--cluster", "a")


def is_refused(capsys, words):
    """Returns what is told."""
    assert main([*words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def read(words):
    return vars(make_parser(*words[:2]).parse_args(words))


@pytest.mark.parametrize("missing", [2, 4])
def test_an_option_that_is_required_is_asked_for(missing, capsys):
    left = [*NODE[: missing - 1], *NODE[missing + 1 :]]
    assert "required" in is_refused(capsys, left)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("up", "--port", "65536"), "--port: expected a whole number from 1 to 65535"),
        (("tls", "init", "--days", "0"), "--days: expected a whole number from 1 to 3650"),
        (("drain", URL, "--timeout-s", "0"), "--timeout-s: expected a number above 0"),
        (("up", "--drain-timeout-s=-1"), "--drain-timeout-s: expected a number of at least 0"),
        ((*NODE, "--seed", "1.5"), "--seed: expected a whole number"),
        ((*NODE, "--log-format", "other"), "--log-format: invalid choice: 'other'"),
        (("plan", "--policy", "isolated"), "--policy: invalid choice: 'isolated'"),
        (("up", "--allow-origin", "h/path"), "--allow-origin: expected http(s)://HOST[:PORT] or *"),
        (("drain", f"{URL}/path"), "expected http(s)://HOST[:PORT], got "),
        (("drain", "h:1"), "expected http(s)://HOST[:PORT], got "),
        (("drain", URL, "--ca-file", "none.crt"), "none.crt: expected a file that can be read"),
        (("tls", "renew", "--ca", "--drop-old-ca"), "not allowed with"),
        (("plan", "tokens", "--pool", "comte8", f"--from={URL}"), "not allowed with"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(words, told, capsys):
    assert told in is_refused(capsys, words)


def test_a_url_is_read_with_or_without_the_blank_path_that_browsers_add():
    assert read(["drain", f"{URL}/"])["url"] == read(["drain", URL])["url"] == URL
