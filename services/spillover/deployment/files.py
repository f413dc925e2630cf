"""Putting what was written where the user wants it, and never over what somebody else wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spillover.deployment.containers import is_written_by_us
from spillover.model.errors import InputError


def put_files(directory: Path, files: Mapping[str, str], *, force: bool = False) -> list[Path]:
    """Writes each text to its path under `directory`; returns the paths written.

    Raises InputError, before anything is written, if there is a file that is not one of ours; not
    with `force`. Raises it also where the system lets nothing be written.
    """
    paths = {directory / name: text for name, text in files.items()}
    try:
        for path in paths:
            if not force and path.exists() and not _is_ours(path):
                expected = f"expected to replace only what it wrote itself, {path} is not (--force)"
                raise InputError("--out", "", expected)
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        expected = f"expected a place that can be written, got {error.filename}: {error.strerror}"
        raise InputError("--out", "", expected) from error
    return list(paths)


def drop_stale(directory: Path, pattern: str, kept: list[Path]) -> None:
    """Remove what an earlier topology left behind: files of ours that match, and are not kept.

    Raises InputError where the system does not let one be read or removed.
    """
    for path in directory.glob(pattern):
        try:
            if path not in kept and path.is_file() and _is_ours(path):
                path.unlink()
        except OSError as error:
            expected = f"expected only files that can be read and removed, got {path}: "
            raise InputError("--out", "", expected + (error.strerror or str(error))) from error


def _is_ours(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return is_written_by_us(file.readline())
