"""Computing figures: in processes, whole or not at all, never twice, and one failure is one."""

from __future__ import annotations

import json
import math
import multiprocessing
import shutil
from pathlib import Path

import pytest

import spillover
from spillover.model.errors import InputError
from spillover.tools.reproduce.catalog import document_of, figures, select
from spillover.tools.reproduce.documents import DOCUMENTS
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.record import (
    read_record,
    remove_drafts,
    sources_digest,
    write_whole,
)
from spillover.tools.reproduce.run import RunOutcome, RunPlan, run_plan
from spillover.tools.reproduce.worker import Task, reproduce

PNG = b"\x89PNG\r\n\x1a\n"
DEFAULT = Effort(full=False)


class Heard:
    """A listener that notes what it is told."""

    def __init__(self):
        self.told = []

    def kept(self, record):
        self.told.append(("kept", record.name))

    def started(self, name):
        self.told.append(("started", name))

    def progressed(self, name, done):
        assert ("started", name) in self.told
        assert 0.0 <= done <= 1.0

    def finished(self, record):
        self.told.append(("finished", record.name))

    def failed(self, name, reason):
        self.told.append(("failed", name))
        assert "\n" not in reason


def plan_of(directory, *names, jobs=2, seed=1, fresh=False):
    return RunPlan(
        names=names, directory=directory, effort=DEFAULT, seed=seed, jobs=jobs, fresh=fresh
    )


def run(plan):
    heard, outcome = Heard(), RunOutcome()
    run_plan(plan, heard, outcome)
    return outcome, heard.told


@pytest.fixture
def quiet():
    """No process of ours is left behind."""
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.processes
@pytest.mark.usefixtures("quiet")
def test_one_that_fails_leaves_the_others(tmp_path):
    """It is told in one line; the others are complete, and not computed again."""
    plan = plan_of(tmp_path, "membership-2", "membership-77")
    outcome, told = run(plan)
    assert list(outcome.computed) == ["membership-2"]
    assert list(outcome.failed) == ["membership-77"]
    assert "KeyError" in outcome.failed["membership-77"]
    assert sorted(told) == [
        ("failed", "membership-77"), ("finished", "membership-2"),
        ("started", "membership-2"), ("started", "membership-77"),
    ]  # fmt: skip
    names = {"membership-2.json", "membership-2.png", "membership-2.dark.png"}
    assert {path.name for path in tmp_path.iterdir()} == names
    content = json.loads((tmp_path / "membership-2.json").read_text())
    assert content["image"] == "membership-2.png"
    assert {"seed", "effort", "versions", "claims", "values", "computed_s"} <= set(content)
    assert (tmp_path / "membership-2.png").read_bytes().startswith(PNG)

    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    outcome, told = run(plan_of(tmp_path, "membership-2"))
    assert (list(outcome.kept), told) == (["membership-2"], [("kept", "membership-2")])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def reproduced(figure, directory, seed=1, effort=DEFAULT):
    return reproduce(Task(figure.name, effort, seed, directory), figure, lambda _: None)


@pytest.mark.slow
def test_a_record_reads_back_as_written(tmp_path, line):
    """And fits the same seed, effort and version only."""
    written = reproduced(line(), tmp_path, seed=5)
    record = read_record("membership-2", tmp_path)
    assert record == written
    assert record.values == {"x": [1, 2, 5]}
    assert [claim.holds for claim in record.claims] == [True, False]
    assert record.fits(DEFAULT, 5)
    assert not record.fits(DEFAULT, 6)
    assert not record.fits(Effort(full=True), 5)
    content = json.loads((tmp_path / "membership-2.json").read_text())
    content["versions"]["sources"] = "others"
    (tmp_path / "membership-2.json").write_text(json.dumps(content))
    assert not read_record("membership-2", tmp_path).fits(DEFAULT, 5)


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}])
def test_values_that_json_cannot_hold_leave_no_file(tmp_path, line, value):
    with pytest.raises((ValueError, TypeError)):
        reproduced(line(compute=lambda *_: {"x": value}), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["", "{", "[]", '{"name": "membership-2"}', "no image"])
def test_what_is_not_whole_counts_as_missing(tmp_path, line, broken):
    """Half a file, another program's, or one whose image is gone."""
    reproduced(line(), tmp_path)
    if broken == "no image":
        (tmp_path / "membership-2.png").unlink()
    else:
        (tmp_path / "membership-2.json").write_text(broken)
    assert read_record("membership-2", tmp_path) is None


def test_code_that_computes_is_part_of_the_version_and_code_that_shows_is_not(tmp_path):
    """A figure is computed again after any change of the first, and of that alone."""
    tree = tmp_path / "spillover"
    shutil.copytree(Path(spillover.__file__).parent, tree)
    before = sources_digest(tree)
    for name in ("tools/reproduce/page.py", "tools/report/page.py", "live/engine/timers.py"):
        (tree / name).write_text("# changed")
    assert sources_digest(tree) == before
    digests = {before}
    for name in ("tools/reproduce/tokens.py", "sim/tokens.py", "policy/overflow/acceptance.py"):
        with (tree / name).open("a") as file:
            file.write("# changed")
        digests.add(sources_digest(tree))
    assert len(digests) == 4
    shutil.rmtree(tree / "core")
    with pytest.raises(RuntimeError, match="core: no code there"):
        sources_digest(tree)


def test_files_are_written_whole(tmp_path):
    """What was there stays until the new one is complete; drafts of the dead are swept."""
    path = tmp_path / "a.json"
    write_whole(path, b"old")
    (tmp_path / "b").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "b", b"new")
    assert {found.name for found in tmp_path.iterdir()} == {"a.json", "b"}
    (tmp_path / ".a.json.77.draft").write_bytes(b"half")
    remove_drafts(tmp_path, 7)
    assert (tmp_path / ".a.json.77.draft").exists()
    remove_drafts(tmp_path, 77)
    assert not (tmp_path / ".a.json.77.draft").exists()


def test_selection_by_figure_and_by_document():
    """In the catalog's order, each once; all if none is named."""
    assert select([]) == list(figures())
    assert select(["membership-4", "membership-2", "membership-4"]) == [
        "membership-2",
        "membership-4",
    ]
    assert select(["membership"]) == ["membership-2", "membership-3", "membership-4"]
    with pytest.raises(InputError, match=r"figure 'member': expected one of lai-polak, .*ship-2"):
        select(["membership", "member"])


def test_the_catalog_is_in_order():
    """Each figure belongs to one document, is called after it, and names are unique."""
    for document in DOCUMENTS:
        own = [name for name in figures() if document_of(name) is document]
        numbers = [int(name.removeprefix(f"{document.prefix}-")) for name in own]
        assert numbers == sorted(set(numbers))
    assert all(name == figure.name for name, figure in figures().items())
