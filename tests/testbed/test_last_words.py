"""What is quoted of a log in one line."""

from spillover.testbed.last_words import TAIL_BYTES, last_words, tail_of


def test_the_last_line_with_words_in_it(tmp_path):
    """From a place on; without a log nothing was said."""
    log = tmp_path / "log"
    assert last_words(log) == "it said nothing"
    log.write_text("a first line\n  the second \n----\n\n12:30\n")
    assert tail_of(log)[0] == "a first line"
    assert last_words(log) == "the second"
    assert last_words(log, len("a first line\n  the second \n")) == "it said nothing"
    log.write_bytes(b"\xff no UTF-8\n")
    assert last_words(log).endswith(" no UTF-8")


def test_long_logs_are_read_from_near_their_end(tmp_path):
    log = tmp_path / "log"
    log.write_text("x" * 10 + "\n" + "y" * TAIL_BYTES)
    assert tail_of(log) == ["y" * TAIL_BYTES]
    assert tail_of(log, TAIL_BYTES + 1) == ["y" * 10]
