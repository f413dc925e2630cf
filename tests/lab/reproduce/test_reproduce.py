"""`spillover reproduce`: files, page and exit status; what is there is not computed again; a wrong
option is one line; and a figure of each document is computed, judged and drawn in a short run."""

import importlib.util
import json
from dataclasses import replace
from functools import partial

import pytest

from spillover.cli import main
from spillover_lab.report.drawing import png
from spillover_lab.reproduce import command as reproduce_command
from spillover_lab.reproduce import leases, membership, networked_queues, policies, probing, tokens
from spillover_lab.reproduce.catalog import FIGURES
from spillover_lab.reproduce.drawing import draw, images
from spillover_lab.reproduce.figure import Effort
from spillover_lab.reproduce.run import read_record, reproduce

PNG = b"\x89PNG\r\n\x1a\n"
SHORT = {
    networked_queues: {"SEEDS": 2},
    leases: {"SEEDS": 1, "PERIODS": 20},
    membership: {"RUNS": 60},
    probing: {"OBJECTS": 1000, "MANY_OBJECTS": 1, "MANY_PRODUCERS": (100, 200, 300)},
    tokens: {"JOBS": 10_000},
    policies: {"HOT_CELLS": ()},
}
"""The constants that make a run of each document's figures short."""
HOLD = ("lai-polak-6", "leases-1", "comte-9", "johnson-4")
"""A quick figure of each document but one, whose statements all hold in a short run: that one is
reproduced whole below."""


@pytest.fixture(autouse=True)
def _extras(require):
    for package, extra in (("matplotlib", "report"), ("numba", "sim"), ("numpy", "sim")):
        require(importlib.util.find_spec(package), f"{package}, from the extra `{extra}`")


@pytest.mark.slow
@pytest.mark.parametrize("name", HOLD)
def test_statements_hold_and_the_figure_draws(name, monkeypatch):
    """For light pages alone."""
    for module, constants in SHORT.items():
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(
        "spillover_lab.reproduce.run.images",
        lambda panels, columns: (png(partial(draw, panels, columns), dark=False),),
    )
    record, pictures = reproduce(FIGURES[name], Effort.DEFAULT, 3)
    assert record.claims
    assert [claim for claim in record.claims if not claim.holds] == []
    assert all(picture.startswith(PNG) for picture in pictures)


@pytest.mark.slow
def test_policies_are_played_on_the_same_requests(monkeypatch):
    """A hot neighbor and rules of others, with few requests: figures come out, and draw."""
    arrivals_of = policies.arrivals_of
    monkeypatch.setattr(
        policies, "arrivals_of", lambda cell, seed: arrivals_of(replace(cell, requests=2_000), seed)
    )
    monkeypatch.setattr(policies, "PUBLISHED_CELLS", policies.PUBLISHED_CELLS[:1])
    for name in ("policies-6", "policies-7"):
        figure = FIGURES[name]
        values = figure.compute(Effort.DEFAULT, 1)
        cells = figure.statements[: len(values["cells"])]
        assert all(statement.judge(values).measured for statement in cells)
        assert images(figure.panels(values), figure.columns)[0].startswith(PNG)


@pytest.mark.processes
def test_files_page_and_resumption(tmp_path, capsys, read, monkeypatch):
    """One object on stdout, a line for each figure on stderr; one that fails leaves the others.
    Again, all is there already."""
    out = tmp_path / "new" / "figures"
    command = ("reproduce", "membership-2", "--out", str(out), "--seed", "3", "--json")
    with monkeypatch.context() as patched:
        patched.setattr(reproduce_command, "select", lambda names: ["membership-77", *names])
        assert main(command) == 1
    stdout, stderr = capsys.readouterr()
    told = json.loads(stdout)
    (figure,), (failed,) = told["figures"], told["failed"]
    assert (figure["name"], figure["skipped"], figure["claims_hold"]) == ("membership-2", False, 3)
    assert failed["name"] == "membership-77"
    assert "KeyError" in failed["reason"]
    assert "\n" not in failed["reason"]
    first, second, last = stderr.splitlines()
    assert first.startswith("membership-77: failed: ")
    assert second.startswith("membership-2: computed in ")
    assert last.startswith("1 computed, 0 there already, 1 failed. 3 of 3 statements hold. Page: ")
    assert {path.name for path in out.iterdir()} == {
        "membership-2.png", "membership-2.dark.png", "membership-2.json", "index.html",
    }  # fmt: skip
    page = read((out / "index.html").read_text())
    assert "3 of 3 statements came out as stated" in " ".join(page.text.split())
    assert [link for link in page.links if not link.startswith("#")] == ["membership-2.json"]
    assert all(source.startswith("data:image/png") for source in page.sources)

    before = (out / "membership-2.json").stat().st_mtime_ns
    assert main(command) == 0
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["figures"][0]["skipped"] is True
    assert "membership-2: there already, 3 of 3 statements hold" in stderr
    assert (out / "membership-2.json").stat().st_mtime_ns == before
    (out / "membership-2.png").unlink()
    assert read_record("membership-2", out) is None, "what is not whole counts as missing"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("membershop", "--out", "{}"), "figure 'membershop': expected one of lai-polak, leases,"),
        (("--out", "{}/file/x"), "--out: expected a directory that can be written to, got "),
        (("--out", ""), "--out: expected the name of a directory, got none"),
        ((), "required: --out"),
        (("--out", "{}", "--jobs", "0"), "--jobs: expected a whole number from 1 to 64, got '0'"),
    ],
)
def test_bad_input_is_told_in_one_line(tmp_path, capsys, arguments, complaint):
    (tmp_path / "file").touch()
    assert main(("reproduce", *(argument.format(tmp_path) for argument in arguments))) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert complaint in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
