"""What is left of a computed figure: NAME.json, and the images that belong to it.

The JSON file is written last and at once, so that where it stands the figure is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import spillover
from spillover.tools.reproduce.figure import Claim, Effort

_DRAFT = ".draft"
_PACKAGES = ("matplotlib", "numba", "numpy")
_REPRODUCE = "tools/reproduce"
_COMPUTING = ("model", "policy", "core", "inputs", "sim", _REPRODUCE)
_SHOWING = ("catalog.py", "documents.py", "page.py", "record.py", "run.py")
"""Of `reproduce`: nothing in them changes what is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A computed figure. `values` is what was measured, in the figure's own shape."""

    name: str
    title: str
    seed: int
    effort: str
    """"default" or "full"."""
    versions: dict[str, str]
    computed_s: float
    """How long the computation took."""
    claims: list[Claim]
    values: dict[str, Any]

    @property
    def image(self) -> str:
        return f"{self.name}.png"

    @property
    def dark_image(self) -> str:
        """Returns the name of the same drawing for dark pages."""
        return f"{self.name}.dark.png"

    def fits(self, effort: Effort, seed: int) -> bool:
        """Returns whether computing the figure again would give the same."""
        mine = (self.seed, self.effort, self.versions)
        return mine == (seed, effort_name(effort), versions())


def effort_name(effort: Effort) -> str:
    """Returns the word for it in files."""
    return "full" if effort.full else "default"


@cache
def versions() -> dict[str, str]:
    """Returns what the numbers may depend on; `sources` changes with the code that computes."""
    return {
        "spillover": spillover.__version__,
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        "sources": sources_digest(Path(spillover.__file__).parent),
    }


def write_record(record: Record, directory: Path) -> None:
    """Write NAME.json. Raises ValueError if a value is no finite number, as JSON has no other."""
    content = {**asdict(record), "image": record.image}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(directory / f"{record.name}.json", f"{text}\n".encode())


def read_record(name: str, directory: Path) -> Record | None:
    """Reads the record of that figure; None if there is none, or none that is whole."""
    try:
        content = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
        record = Record(
            name=content["name"],
            title=content["title"],
            seed=content["seed"],
            effort=content["effort"],
            versions=content["versions"],
            computed_s=content["computed_s"],
            claims=[Claim(**claim) for claim in content["claims"]],
            values=content["values"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    images = (directory / record.image, directory / record.dark_image)
    whole = record.name == name and all(image.is_file() for image in images)
    return record if whole else None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees a part of it."""
    # Beside it, as only within a file system is a move one step; hidden, and of this process.
    draft = path.with_name(f".{path.name}.{os.getpid()}{_DRAFT}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def remove_drafts(directory: Path, process_id: int) -> None:
    """Remove what a process was writing when it was ended."""
    for draft in directory.glob(f".*.{process_id}{_DRAFT}"):
        draft.unlink(missing_ok=True)


def sources_digest(package: Path) -> str:
    """Returns a short digest of the code in a tree of the package that what is measured may depend
    on."""
    digest = hashlib.sha256()
    for part in _COMPUTING:
        sources = sorted((package / part).rglob("*.py"))
        if not sources:
            raise RuntimeError(f"{part}: no code there, though figures are computed with it")
        for path in sources:
            if part != _REPRODUCE or path.name not in _SHOWING:
                digest.update(path.relative_to(package).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
