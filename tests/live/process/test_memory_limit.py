"""What a process may take, read from files like those of the kernel; and giving memory back."""

import os
import resource

import pytest

from spillover.live.process import memory_limit
from spillover.live.process.memory_limit import (
    default_held_limit_bytes,
    memory_limit_bytes,
)

MIB = 2**20
V2, V1 = "memory.max", "memory.limit_in_bytes"
UNSET_V1 = str(2**63 - 4096)
"""As version 1 writes that there is no limit."""

CASES = {
    "version 2, its own": ("0::/app\n", {f"app/{V2}": "134217728\n"}, 128),
    "version 2, of a group above": (
        "0::/s/app\n",
        {f"s/app/{V2}": "max\n", f"s/{V2}": "9437184"},
        9,
    ),
    "version 2, the least": ("0::/s/app\n", {f"s/app/{V2}": "8388608", f"s/{V2}": "9437184"}, 8),
    "version 2, a path with colons": ("0::/a:b:c\n", {f"a:b:c/{V2}": "134217728\n"}, 128),
    "version 2, in a container": ("0::/\n", {V2: "134217728\n"}, 128),
    "version 2, path of the host": ("0::/docker/abc\n", {V2: "134217728\n"}, 128),
    "version 1": ("5:cpu:/x\n4:memory:/app\n", {f"memory/app/{V1}": "134217728\n"}, 128),
    "version 1, in a container": ("4:memory:/docker/abc\n", {f"memory/{V1}": "134217728"}, 128),
    "version 1, with others": ("4:pids,memory:/\n0::/\n", {f"memory/{V1}": "134217728"}, 128),
}


@pytest.mark.parametrize("case", CASES)
def test_limits_of_control_groups_are_found(tmp_path, case):
    """Both versions, the tightest on the way up, also where only the own group can be seen."""
    groups, files, expected_mib = CASES[case]
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        (tmp_path / "mount" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mount" / name).write_text(text)
    assert memory_limit_bytes(tmp_path / "cgroup", tmp_path / "mount") == expected_mib * MIB


@pytest.mark.parametrize("text", ["", "max\n", UNSET_V1, "nonsense", "-1", "1e9"])
def test_without_a_limit_it_is_what_the_machine_has(tmp_path, text):
    """Whatever stands there."""
    machine_bytes = memory_limit_bytes(tmp_path / "missing", tmp_path)
    (tmp_path / "cgroup").write_text("4:memory:/\n0::/\nodd\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / V1).write_text(text)
    (tmp_path / V2).write_text(text)
    assert memory_limit_bytes(tmp_path / "cgroup", tmp_path) == machine_bytes
    assert machine_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("pages", "soft", "processes", "expected_mib"),
    [
        (2**21, {}, 1, 2048),
        (2**21, {}, 2, 1024),
        (2**21, {}, 1000, 64),
        (2**15, {}, 1, 64),
        (2**21, {resource.RLIMIT_DATA: 2**30}, 1, 256),
        (2**21, {resource.RLIMIT_AS: 2**30}, 2, 128),
        (2**21, {resource.RLIMIT_DATA: 2**31, resource.RLIMIT_AS: 2**30}, 1, 256),
        (2**18, {resource.RLIMIT_DATA: 2**40}, 1, 256),
        (None, {}, 1, 256),
    ],
)
def test_the_default_is_a_quarter_of_the_least_limit(
    monkeypatch, tmp_path, pages, soft, processes, expected_mib
):
    """Of pages of 4 KiB; a machine that does not tell is taken to have 1 GiB."""

    def told(name):
        if pages is None:
            raise ValueError(name)
        return {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": pages}[name]

    monkeypatch.setattr(os, "sysconf", told)
    monkeypatch.setattr(
        resource, "getrlimit", lambda kind: (soft.get(kind, resource.RLIM_INFINITY), 0)
    )
    monkeypatch.setattr(
        memory_limit.memory_limit_bytes, "__defaults__", (tmp_path / "no", tmp_path)
    )
    assert default_held_limit_bytes(processes) == expected_mib * MIB
