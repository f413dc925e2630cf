"""Compiling from outside: callees found by themselves, caches that notice what has changed."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

TREE = {
    "spillover/sim/fast/zz_rule.py": "FACTOR = 2\n\ndef rule(x):\n    return FACTOR * x\n",
    "spillover/sim/fast/zz_model.py": (
        "from spillover.sim.fast.compile import compiled, inner, kernel\n"
        "from spillover.sim.fast.zz_rule import rule\n\n"
        "@inner\ndef twice(x):\n    return rule(rule(x))\n\n"
        "@kernel\ndef model(x):\n    return twice(x) + 1\n"
    ),
    "spillover/sim/fast/zz_rules.py": (
        "def rule(x):\n    return 2 * x\n\ndef rival(x):\n    return 5 * x\n"
    ),
    "spillover/sim/fast/zz_registry.py": (
        "from spillover.sim.fast.zz_rules import rival, rule\nRULES = [rule, rival]\n"
    ),
    "spillover/sim/fast/zz_other.py": (
        "from spillover.sim.fast.compile import inlined, kernel\n"
        "from spillover.sim.fast.zz_registry import RULES\n\n"
        "def either(one, other):\n"
        "    @inlined\n    def choose(x):\n        return one(x) if x < 4 else other(x)\n"
        "    return choose\n\n"
        "choose = either(*RULES)\n\n"
        "@kernel\ndef other(x):\n    return choose(x)\n"
    ),
}
SHOW = """
import os, sys
import spillover.sim.fast.compile

def show(tree):
    spillover.__path__.append(tree)
    spillover.sim.fast.__path__.append(tree + "/sim/fast")
    from spillover.sim.fast.zz_model import model
    from spillover.sim.fast.zz_other import other
    print(model(3), sum(model.stats.cache_hits.values()), other(3), flush=True)

for line in sys.stdin:
    if os.fork() == 0:
        show(line.strip())
        os._exit(0)
    os.wait()
"""
"""For each tree that is named, in a process of its own that has not read the models yet; what they
need of Numba it has, which takes longer to load than they do to compile."""


def write(directory, tree):
    for name, text in tree.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def show(numba, tmp_path):
    """Runs the little models in a process of their own: the result of one, whether it was kept, and
    the result of the other."""
    write(tmp_path, TREE)
    # Python's own cache of the module would go by size and time, which stay the same here.
    own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**os.environ, **own}
    environment.pop("NUMBA_CACHE_DIR", None)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", SHOW]
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:

        def run(tree=tmp_path):
            print(tree / "spillover", file=process.stdin, flush=True)
            return tuple(int(word) for word in process.stdout.readline().split())

        yield run


def test_what_is_kept_is_used_until_a_callee_or_a_registry_changes(show, tmp_path):
    """The rule is in another file than the kernel, two calls away; no function is written in the
    registry, only which of them is called changes there. And what is kept is used by another copy
    of the source, a second checkout: other paths, other times, the same text."""
    copy = tmp_path / "another"
    write(copy, TREE)
    os.utime(copy / "spillover/sim/fast/zz_model.py", (1e9, 1e9))
    assert show() == (13, 0, 6)
    assert show(tree=copy) == (13, 1, 6)
    rule = tmp_path / "spillover/sim/fast/zz_rule.py"
    stamp = rule.stat()
    rule.write_text(TREE["spillover/sim/fast/zz_rule.py"].replace("2", "5"))
    os.utime(rule, (stamp.st_atime, stamp.st_mtime))
    registry = tmp_path / "spillover/sim/fast/zz_registry.py"
    registry.write_text(registry.read_text().replace("[rule, rival]", "[rival, rule]"))
    assert show() == (76, 0, 15)


def test_without_a_place_to_keep_it_all_works(numba, tmp_path, monkeypatch):
    """A home that cannot be written to, as in a container: compiled anew each time."""
    from spillover.sim.fast import compile as compiling

    no_directory = tmp_path / "file"
    no_directory.write_text("")
    monkeypatch.setattr(compiling.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(no_directory))
    assert compiling.kernel(lambda x: x + 1)(3) == 4
