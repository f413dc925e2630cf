"""House rules that no linter checks: sizes, names, docstrings, and what lies where."""

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
REAL_TIME = {TESTS / place for place in ("e2e", "realtime", "soak")} | {
    TESTS / "support" / place for place in ("faults", "handlers", "leases", "services")
}
"""Where what is waited for may be time itself."""
TOP_LEVEL = {
    *("pyproject.toml", "requirements.lock", "Makefile", "README.md", "LICENSE", "CHANGELOG.md"),
    "SECURITY.md",
    *("services", "deploy", "loadgen", "tests", "dashboards"),
}


DOCSTRING = re.compile(r'(?:\s|#.*\n)*[rR]?"""\s*(?!""")\S')
NAMES_ONE = re.compile(
    r"^ *(?:import random\b|from random import (?!Random$))"
    r"|\.sleep\b|^.*\bimport\b.*\bsleep\b|^ +sleep,",
    re.MULTILINE,
)
"""What may draw or sleep."""


class Source:
    """What the rules want to know of a file, which is read once."""

    def __init__(self, path):
        self.path = path
        self.name = path.relative_to(ROOT).as_posix()
        self.text = path.read_text(encoding="utf-8")
        self.docstring = DOCSTRING.match(self.text)
        # Most files need not be parsed for what they do not even name.
        nodes = list(ast.walk(ast.parse(self.text))) if NAMES_ONE.search(self.text) else []
        self.draws = list(uses(nodes, "random", SHARED_RANDOM))
        self.sleeps = [*uses(nodes, "time", {"sleep"}), *uses(nodes, "asyncio", {"sleep"})]


SHARED_RANDOM = {name for name in vars(random) if name.islower() and not name.startswith("_")}


def uses(nodes, module, functions):
    """`module.function` where the module is imported, and imports of those functions by name."""
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


@pytest.fixture(scope="module")
def sources():
    return [Source(path) for path in SOURCES]


def test_modules_say_what_lives_in_them(sources):
    """Every module has a docstring, and a name that means something."""
    meaningless = {"utils", "util", "helpers", "common", "misc"}
    assert not [source.name for source in sources if source.path.stem in meaningless]
    assert not [source.name for source in sources if not source.docstring]


def test_nothing_is_left_for_later(sources):
    """What is to be done is an issue, not a comment."""
    marker = re.compile(r"\b(?:" + "TO" + "DO|FIX" + "ME|X" + r"XX)\b")
    assert not [source.name for source in sources if marker.search(source.text)]


def test_random_numbers_come_from_a_generator_that_was_handed_in(sources):
    """Nobody draws from the generator that the whole process shares: runs repeat by their seed."""
    assert not {source.name: source.draws for source in sources if source.draws}


def test_tests_wait_for_conditions(sources):
    """A test that sleeps is slow when all is well and wrong when the machine is busy."""
    assert not [
        source.name
        for source in sources
        if source.path.is_relative_to(TESTS)
        and not REAL_TIME & set(source.path.parents)
        and source.sleeps
    ]


@pytest.mark.processes
def test_the_top_level_stays_small(require):
    """A newcomer sees at a glance where things are."""
    require((ROOT / ".git").exists(), "a git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {line.strip('"').split("/")[0] for line in files.splitlines()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_the_readme_is_short_and_two_commands_suffice():
    """`make demo` shows it, `make test` checks it; nothing else has to be set up. Who has a machine
    that does nothing else can try `make realtime`, too."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    assert set(re.findall(r"(?:^ *|`)(make [a-z]+)", text, re.MULTILINE)) == {
        "make demo",
        "make realtime",
        "make test",
    }


def test_the_lock_names_no_place():
    """Packages are locked by name and hash; where they come from is the installer's business."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert not re.findall(r"\S*(?:://|file:|--index|--find-links)\S*", lock)
    pins = re.findall(r"^[a-z0-9][^\n]*\\\n +--hash=sha256:", lock, re.MULTILINE)
    assert len(pins) == len(re.findall(r"^[^\s#]", lock, re.MULTILINE))
