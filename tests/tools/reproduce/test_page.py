"""The page: whole, self-contained, and true to the records."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import pytest

from spillover.model.errors import RunError
from spillover.tools.reproduce.catalog import figures
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.page import _facts, reproduction_page, write_page
from spillover.tools.reproduce.worker import Task, reproduce

INLINE = {"b", "i", "em", "strong", "sub", "sup", "code", "br"}


@pytest.fixture
def record(tmp_path, line):
    task = Task("membership-2", Effort(full=False), 7, tmp_path)
    return reproduce(task, line(), lambda _: None)


@pytest.mark.slow
def test_the_page_is_whole_and_needs_nothing(record, read, tmp_path):
    """Well-formed; both images inside; nothing is loaded from anywhere; light and dark."""
    path = write_page(tmp_path)
    assert path == tmp_path / "index.html"
    text = path.read_text()
    page = read(text)
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert [link for link in page.links if not link.startswith("#")] == ["membership-2.json"]
    assert not re.search(r"(?:https?:|@import|url\(|<script)", text)
    images = [base64.b64decode(source.partition("base64,")[2]) for source in page.sources]
    expected = [tmp_path / record.dark_image, tmp_path / record.image]
    assert images == [image.read_bytes() for image in expected]
    assert "prefers-color-scheme: dark" in text


@pytest.mark.slow
def test_the_page_tells_what_the_record_says(record, read, tmp_path):
    """Title, both statements with what was measured, seed; what is missing is named."""
    page = read(reproduction_page([record], tmp_path))
    words = " ".join(page.text.split())
    for told in (
        "1 of 2 statements came out as stated",
        "A line & its <end>",
        "x < 3 grows", "by 1 & more", "ends at 7", "does not",
        "seed 7, default precision",
        "What the document leaves open",
        "Shraer, Benjamin Reed",
    ):  # fmt: skip
        assert told in words
    assert "Not computed yet: " in words
    assert "membership-3, membership-4" in words
    assert "Comte" not in words


def test_without_figures_there_is_still_a_page(read, tmp_path):
    """After an interrupt, before anything was finished."""
    page = read(write_page(tmp_path).read_text())
    assert "0 of 0 statements" in " ".join(page.text.split())


@pytest.mark.slow
def test_records_that_are_no_longer_known_are_left_out(record, tmp_path):
    """The page shows the catalog's figures, not whatever lies in the directory."""
    for suffix in (".json", ".png", ".dark.png"):
        content = (tmp_path / f"membership-2{suffix}").read_bytes()
        (tmp_path / f"membership-99{suffix}").write_bytes(content)
    assert "membership-99" not in write_page(tmp_path).read_text()


def test_a_page_that_cannot_be_written(tmp_path):
    (tmp_path / "index.html").mkdir()
    with pytest.raises(RunError, match=r"index\.html: the page cannot be written"):
        write_page(tmp_path)


@pytest.mark.parametrize("name", list(figures()))
def test_explanations_are_plain(read, name):
    """A few words in bold at most: they go into the page as they are."""
    figure = figures()[name]
    page = read(f"<p>{figure.explanation}</p>")
    assert set(page.tags) <= {"p", *INLINE}
    assert len(page.text) > 100
    assert 0 < len(figure.title) < 100


def test_what_another_version_has_computed_is_told(record, tmp_path):
    """By the names of its figures; not of what is of this one."""
    facts = _facts([record])
    assert "by another version" not in facts
    assert (facts["seeds"], facts["computed in"]) == ("7", "0 s of one core")
    older = replace(record, name="membership-3", versions={"spillover": "0.0"}, seed=3)
    assert _facts([record, older])["by another version"] == "membership-3"
    assert _facts([record, older])["seeds"] == "3, 7"
    assert _facts([]) == {}
