"""The part of requirements.lock that an image needs, hashes and all, on standard output.

    python lock_subset.py base leases     what nodes need, and the extra `leases`
    python lock_subset.py build           the dependency group `build`

Run where pyproject.toml and requirements.lock are. The lock says of each package who wanted it
("# via"), so what is wanted follows from there; nothing is resolved anew.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_ENTRY = re.compile(r"^(?=[a-z0-9])", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def main(parts: list[str]) -> None:
    """Print the entries of the lock for these parts of the project."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    groups = {
        "base": project["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
        **project["dependency-groups"],
    }
    unknown = [part for part in parts if part not in groups]
    if unknown or not parts:
        raise SystemExit(f"expected some of {', '.join(groups)}, got {' '.join(unknown) or 'none'}")
    wanted = {_name(requirement) for part in parts for requirement in groups[part]}
    lock = Path("requirements.lock").read_text(encoding="utf-8")
    entries = [entry for entry in _ENTRY.split(lock) if entry.strip() and entry[0] != "#"]
    missing = wanted - {_name(entry) for entry in entries}
    if missing:
        raise SystemExit(f"expected {', '.join(sorted(missing))} in requirements.lock: make lock")
    while True:
        more = {_name(entry) for entry in entries if _wanted_by(entry) & wanted} - wanted
        if not more:
            break
        wanted |= more
    sys.stdout.writelines(entry for entry in entries if _name(entry) in wanted)


def _name(requirement: str) -> str:
    """The name of the package at the beginning of a requirement, in its normal form."""
    found = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def _wanted_by(entry: str) -> set[str]:
    """The packages that the comment of this entry names."""
    _, _, comment = entry.partition("# via")
    return {_name(line.strip(" #")) for line in comment.splitlines()} - {""}


if __name__ == "__main__":
    main(sys.argv[1:])
