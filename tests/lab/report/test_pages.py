"""What pages share: everything is escaped, nothing is made up, what is missing is told."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import spillover_lab
from spillover.model.errors import RunError
from spillover_lab.report.drawing import color, png, svg
from spillover_lab.report.page import page, write_report

TEMPLATES = sorted(Path(spillover_lab.__file__).parent.rglob("*.jinja"))


@pytest.fixture
def _matplotlib(require):
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `report`")


def test_every_value_is_escaped_and_every_name_must_be_given(read):
    """A title that looks like HTML appears as what it is; a misspelled name is an error."""
    title = "</title><script>alert('&')"
    text = page("report/frame.html.jinja", title=title, facts={"<b>": "<i>"})
    assert text.startswith("<!DOCTYPE html>")
    found = read(text)
    assert title in found.text
    assert "<b><i>" in found.text
    assert not {"script", "b", "i"} & set(found.tags)
    with pytest.raises(Exception, match="'facts' is undefined"):
        page("report/frame.html.jinja", title=title)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_take_nothing_from_elsewhere(path):
    """No other host, no script; what is not escaped is ours."""
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)|<script|@import|url\(", text)
    unescaped = set(re.findall(r"([\w.\[\]]+) \| safe", text))
    assert unescaped <= {"drawings[0]", "drawings[1]", "part.explanation"}


@pytest.mark.slow
@pytest.mark.usefixtures("_matplotlib")
def test_a_drawing_is_the_same_each_time_and_follows_the_theme():
    """Named colors become variables; PNG has the colors of one theme."""

    def draw(figure):
        axes = figure.subplots()
        axes.plot([1, 2], color=color("series-300"))
        axes.plot([2, 1], color=color("hops-6"))

    def plain(figure):
        figure.subplots().plot([1, 2])

    first, again = (svg("a", 'x < "y"', (200, 100), draw) for _ in range(2))
    assert first == again
    assert "stroke: var(--series-300)" in first
    assert "stroke: var(--hops-6)" in first
    assert 'aria-label="x &lt; &quot;y&quot;"' in first
    light, dark, again = (png(plain, dark=dark) for dark in (False, True, False))
    assert light == again != dark
    assert light.startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="not in tuple"):
        color("no-such")


def test_a_report_is_written_where_asked_or_told_in_one_line(tmp_path):
    path = tmp_path / "report.html"
    write_report("é", path)
    assert path.read_text(encoding="utf-8") == "é"
    with pytest.raises(RunError, match=r"html: the report cannot be written: No such file"):
        write_report("x", tmp_path / "missing" / "report.html")
