"""House rules that no linter checks: sizes, names, docstrings, and what lies where."""

from __future__ import annotations

import ast
import random
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path
    for top in ("services", "loadgen", "tests", "dashboards")
    for path in (ROOT / top).rglob("*.py")
)
TESTS = ROOT / "tests"
REAL_TIME = {TESTS / place for place in ("e2e", "soak")} | {
    TESTS / "support" / place for place in ("faults", "handlers", "leases")
}
"""Where what is waited for may be time itself."""
FUNCTION_LINES = 50
TOP_LEVEL = {
    *("pyproject.toml", "requirements.lock", "Makefile", "README.md", "LICENSE", "CHANGELOG.md"),
    *("services", "deploy", "loadgen", "tests", "dashboards"),
}

each_source = pytest.mark.parametrize(
    "path", SOURCES, ids=[path.relative_to(ROOT).as_posix() for path in SOURCES]
)


def uses(tree, module, functions):
    """`module.function` where the module is imported, and imports of those functions by name."""
    nodes = list(ast.walk(tree))
    imports = [name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    bound = {name.asname or name.name for name in imports if name.name == module}
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in bound:
                found = [attribute]
            case ast.ImportFrom(module=name) if name == module:
                found = [alias.name for alias in node.names]
            case _:
                continue
        yield from (f"{module}.{name}" for name in found if name in functions)


LONG_FILES = {
    # The transitions of one machine are read together.
    "services/spillover/core/overflow/machine.py": 600,
    # What is bounded of a connection is one list.
    "services/spillover/apps/node/http_protocol.py": 420,
    # One cluster, and all that can go wrong with it.
    "services/spillover/sim/overflow/faulty_cluster.py": 410,
    # One model of one machine.
    "tests/core/overflow/test_machine.py": 600,
}


@each_source
def test_files_and_functions_are_short(path):
    """A file fits in one's head, a function on one screen."""
    text = path.read_text(encoding="utf-8")
    line_count = text.count("\n")
    usual = 500 if path.is_relative_to(TESTS) else 400
    assert line_count <= LONG_FILES.get(path.relative_to(ROOT).as_posix(), usual)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < FUNCTION_LINES, node.name


@each_source
def test_modules_say_what_lives_in_them(path):
    """Every module has a docstring, and a name that means something."""
    assert path.stem not in {"utils", "util", "helpers", "common", "misc"}
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@each_source
def test_nothing_is_left_for_later(path):
    """What is to be done is an issue, not a comment."""
    marker = "TO" + "DO|FIX" + "ME|X" + "XX"
    assert not re.findall(rf"\b(?:{marker})\b", path.read_text(encoding="utf-8"))


@each_source
def test_random_numbers_come_from_a_generator_that_was_handed_in(path):
    """Nobody draws from the generator that the whole process shares: runs repeat by their seed."""
    shared = {name for name in vars(random) if name.islower() and not name.startswith("_")}
    assert not list(uses(ast.parse(path.read_text(encoding="utf-8")), "random", shared))


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path.is_relative_to(TESTS) and not REAL_TIME & set(path.parents)],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_tests_wait_for_conditions(path):
    """A test that sleeps is slow when all is well and wrong when the machine is busy."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [*uses(tree, "time", {"sleep"}), *uses(tree, "asyncio", {"sleep"})]


@pytest.mark.processes
def test_the_top_level_stays_small(require):
    """A newcomer sees at a glance where things are."""
    require((ROOT / ".git").exists(), "a git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {line.strip('"').split("/")[0] for line in files.splitlines()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_the_readme_is_short_and_two_commands_suffice():
    """`make demo` shows it, `make test` checks it; nothing else has to be set up."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    assert set(re.findall(r"(?:^ *|`)(make [a-z]+)", text, re.MULTILINE)) == {
        "make demo",
        "make test",
    }


def test_the_lock_names_no_place():
    """Packages are locked by name and hash; where they come from is the installer's business."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert not re.findall(r"\S*(?:://|file:|--index|--find-links)\S*", lock)
    pins = re.findall(r"^[a-z0-9][^\n]*\\\n +--hash=sha256:", lock, re.MULTILINE)
    assert len(pins) == len(re.findall(r"^[^\s#]", lock, re.MULTILINE))
