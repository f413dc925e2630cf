"""The generated page of the reference: it is what the generator writes, and explains everything
that users can set."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spillover.inputs.topology_file import load_topology

pytestmark = pytest.mark.processes

SERVICES = Path(__file__).parents[2] / "services"
PAGE = SERVICES / "docs" / "configuration.md"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page as the generator writes it now."""
    directory = tmp_path_factory.mktemp("reference")
    done = run("-m", "docs", "--out", str(directory))
    assert done.returncode == 0, f"not explained:\n{done.stderr}"
    return (directory / PAGE.name).read_text(encoding="utf-8")


def run(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=SERVICES, capture_output=True, text=True, check=False
    )


def python(code):
    """What the generator's modules say: the package is found in services/ alone."""
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_committed_page_is_what_the_generator_writes(written):
    assert PAGE.read_text(encoding="utf-8") == written, "stale: run `make reference`"


def test_the_examples_are_what_is_read(written, tmp_path):
    """Of topologies: each can be copied as it stands."""
    part = re.split(r"^## ", written, flags=re.MULTILINE)[1]
    examples = re.findall(r"^```yaml\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for text in examples:
        file = tmp_path / "example.yaml"
        file.write_text(text)
        assert len(load_topology(str(file)).clusters) == 2


def test_each_reason_belongs_to_an_option():
    """Reasons of options that are gone, or were renamed, are found out."""
    unknown = python(
        "from docs.configuration import COMMANDS_SHOWN\n"
        "from docs.option_reasons import REASONS\n"
        "from docs.options import names_of\n"
        "names = {c: names_of(c) for c in COMMANDS_SHOWN}\n"
        "known = {n for found in names.values() for n in found}\n"
        "known |= {f'{c} {n}' for c, found in names.items() for n in found}\n"
        "print(*sorted(set(REASONS) - known), sep='; ')\n"
    ).strip()
    assert not unknown, f"reasons without an option, in services/docs/option_reasons.py: {unknown}"
