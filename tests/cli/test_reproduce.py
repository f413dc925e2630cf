"""`spillover reproduce` from the outside: files, exit status, what is skipped, what is refused."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from spillover.cli import main, reproduce
from spillover.tools.reproduce.figure import Claim, Effort
from spillover.tools.reproduce.record import Record
from spillover.tools.reproduce.run import RunOutcome, RunPlan
from support.declared import read

WITHIN_S = 60.0


@pytest.fixture(autouse=True)
def _extras(require):
    for package in ("matplotlib", "numba", "numpy"):
        require(importlib.util.find_spec(package), f"{package}, from the extras")


@pytest.mark.processes
def test_figures_page_and_resumption(tmp_path, capsys):
    """One object on stdout, a line for each figure on stderr; again, all is there already."""
    out = tmp_path / "new" / "figures"
    command = ("reproduce", "membership-2", "--out", str(out), "--seed", "3", "--json")
    assert main(command) == 0
    stdout, stderr = capsys.readouterr()
    (figure,) = json.loads(stdout)["figures"]
    assert (figure["name"], figure["skipped"]) == ("membership-2", False)
    assert "membership-2: computed in " in stderr
    assert {path.name for path in out.iterdir()} == {
        "membership-2.png", "membership-2.dark.png", "membership-2.json", "index.html",
    }  # fmt: skip
    assert json.loads((out / "membership-2.json").read_text())["seed"] == 3

    before = (out / "membership-2.json").stat().st_mtime_ns
    assert main(command) == 0
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["figures"][0]["skipped"] is True
    assert "membership-2: there already" in stderr
    assert (out / "membership-2.json").stat().st_mtime_ns == before


def interrupted_when(condition, directory):
    """Reproduce two figures in `directory`/out by one process, press Ctrl-C once
    `condition(process, stderr so far)` is true. All of stderr."""
    told = directory / "stderr"
    arguments = ("membership-2", "membership-4", "--jobs", "1", "--out", str(directory / "out"))
    with told.open("w") as stderr:
        process = subprocess.Popen(
            (sys.executable, "-m", "spillover", "reproduce", *arguments),
            stderr=stderr,
            start_new_session=True,
        )
    try:
        deadline_s = time.monotonic() + WITHIN_S
        while not condition(process, told.read_text()):
            assert time.monotonic() < deadline_s
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.02)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(WITHIN_S)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in told.read_text()
    return told.read_text()


@pytest.mark.processes
def test_ctrl_c_leaves_finished_figures(tmp_path):
    """Exit status 130; what is finished stays, of the rest there is nothing."""
    stderr = interrupted_when(lambda _, told: "membership-2: computed in" in told, tmp_path)
    assert "1 computed, 0 there already; interrupted, what is finished stays" in stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "membership-2.png", "membership-2.dark.png", "membership-2.json", "index.html",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("membershop", "--out", "{}"), "figure 'membershop': expected one of lai-polak, leases,"),
        (("--out", "{}/file/x"), "--out: expected a directory that can be written to, got "),
        (("--out", "{}/file"), "--out: expected a directory that can be written to, got "),
        (("--out", ""), "--out: expected the name of a directory, got none"),
        ((), "required: --out"),
        (("--out", "{}", "--jobs", "0"), "--jobs: expected a whole number from 1 to 64, got '0'"),
        (("--out", "{}", "--seed", "x"), "--seed: expected a whole number, got 'x'"),
    ],
)
def test_bad_input(tmp_path, capsys, arguments, complaint):
    """One line, exit status 2, nothing written."""
    (tmp_path / "file").touch()
    filled = [argument.format(tmp_path) for argument in arguments]
    assert main(("reproduce", *filled)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert complaint in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_help_names_documents_and_figures(capsys):
    with pytest.raises(SystemExit):
        main(("reproduce", "--help"))
    said = " ".join(capsys.readouterr().out.split())
    assert "lai-polak (5, 6, 7, 8, 9), leases (1), comte (9, 10, 12, 13), johnson (2, " in said


def record(name, *holds):
    """A figure with so many statements."""
    claims = [Claim("it is so", "1", "2", each) for each in holds]
    return Record(
        name=name, title="Title", seed=3, effort="default", versions={}, computed_s=1.25,
        claims=claims, values={},
    )  # fmt: skip


OUTCOME = RunOutcome(
    computed={"comte-9": record("comte-9", True, False, True)},
    kept={"comte-10": record("comte-10", True)},
    failed={"comte-12": "no room", "comte-13": "too late"},
)


@pytest.mark.parametrize(
    ("outcome", "interrupted", "status"),
    [
        (RunOutcome(), False, 0),
        (RunOutcome(failed={"comte-12": "no room"}), False, 1),
        (RunOutcome(failed={"comte-12": "no room"}), True, 130),
        (RunOutcome(), True, 130),
    ],
)
def test_a_figure_that_failed_is_told_by_the_status(outcome, interrupted, status, tmp_path, capsys):
    """The page is there in any case, and the object where all was done."""
    plan = reproduce._plan_of(Namespace(**read(["reproduce", "--out", str(tmp_path)])))
    ended = reproduce._end(plan, outcome, interrupted=interrupted, as_json=True)
    out, err = capsys.readouterr()
    assert (ended, (tmp_path / "index.html").exists()) == (status, True)
    assert ("interrupted" in err, bool(out)) == (interrupted, not interrupted)
    assert interrupted or len(json.loads(out)["failed"]) == status
    assert reproduce._end(plan, outcome, interrupted=False, as_json=False) == len(outcome.failed)
    assert capsys.readouterr().out == ""


def test_figures_are_computed_as_it_was_asked_for(tmp_path):
    words = ["reproduce", "--out", str(tmp_path / "new" / "one")]
    plan = reproduce._plan_of(Namespace(**read(words)))
    assert (plan.directory, plan.directory.is_dir()) == (tmp_path / "new" / "one", True)
    assert (plan.effort.full, plan.seed, plan.jobs, plan.fresh) == (False, 1, 2, False)
    assert len(plan.names) > 20
    more = "--full --seed 4 --jobs 3 --fresh comte-9"
    plan = reproduce._plan_of(Namespace(**read([*words, *more.split()])))
    assert (plan.effort.full, plan.seed, plan.jobs, plan.fresh) == (True, 4, 3, True)
    assert list(plan.names) == ["comte-9"]


def test_what_came_of_figures_is_told_in_their_order():
    """Those that were there already, too; what failed is told apart."""
    plan = RunPlan(
        names=["comte-10", "comte-12", "comte-9"], directory=Path("out"),
        effort=Effort(full=True), seed=3, jobs=2, fresh=False,
    )  # fmt: skip
    told = reproduce._as_json(plan, OUTCOME, Path("out/index.html"))
    kept, computed = told.pop("figures")
    assert told == {
        "out": "out", "page": "out/index.html", "seed": 3, "effort": "full",
        "failed": [
            {"name": "comte-12", "reason": "no room"}, {"name": "comte-13", "reason": "too late"},
        ],
    }  # fmt: skip
    assert (kept["name"], kept["skipped"]) == ("comte-10", True)
    assert computed == {
        "name": "comte-9", "image": "out/comte-9.png", "data": "out/comte-9.json",
        "skipped": False, "computed_s": 1.25, "claims": 3, "claims_hold": 2,
    }  # fmt: skip
    plan = replace(plan, effort=Effort(full=False))
    assert reproduce._as_json(plan, OUTCOME, Path("x"))["effort"] == "default"


def test_the_last_line_counts_figures_and_statements(capsys, tmp_path):
    page = tmp_path / "index.html"
    for outcome, interrupted, counts in (
        (OUTCOME, False, "1 computed, 1 there already, 2 failed. 3 of 4 statements hold. "),
        (RunOutcome(), True, "0 computed, 0 there already; interrupted, what is finished stays "),
    ):
        reproduce._tell_end(outcome, page, interrupted=interrupted)
        line = capsys.readouterr().err
        assert line.startswith(counts)
        assert line.endswith(f". Page: {page.as_uri()}\n")
