"""Options that a demo would not heed. The whole commands are in tests/realtime."""

import pytest

from spillover.cli import main


@pytest.mark.parametrize("words", [("--topology", "chord5"), ("--quick",), ("--report", "x.html")])
def test_what_is_for_bursts_is_not_ignored_with_streams(words, capsys):
    assert main(["demo", "streams", *words]) == 2
    told = f"spillover: {words[0]}: expected none with streams: it is for bursts\n"
    assert capsys.readouterr() == ("", told)
