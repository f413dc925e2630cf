"""The class of all commands, and the commands that come from outside of `spillover`: a distribution
names them as entry points of the group `spillover.commands`, and they are loaded when asked for.

The product's own commands are listed in `commands`.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType

GROUP = "spillover.commands"


@dataclass(frozen=True, slots=True)
class CliCommand:
    """A command, whose module has `configure(parser)` and `run(options) -> exit status`. A word of
    `forms` behind its name makes it another command."""

    module: str
    summary: str
    forms: Mapping[str, CliCommand] = field(default_factory=dict)

    def load(self) -> ModuleType:
        """Returns the module, imported while nobody looks for garbage: what is loaded stays, and a
        node has started a tenth sooner."""
        gc.disable()
        try:
            return importlib.import_module(self.module)
        finally:
            gc.enable()


def added_commands(below: str = "") -> dict[str, CliCommand]:
    """Returns the commands of this distribution's entry points, by name; those that stand below a
    command of ours (`lease demo`) by their last word, for `below="lease"`. No command's module is
    imported, and a copy of the package that was never installed has none."""
    from importlib.metadata import PackageNotFoundError, distribution  # it takes 20 ms

    try:
        points = distribution("spillover").entry_points.select(group=GROUP)
    except PackageNotFoundError:
        return {}
    named = {tuple(point.name.rpartition(" ")[::2]): point for point in points}
    return {name: point.load() for (above, name), point in named.items() if above == below}
