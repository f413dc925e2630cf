"""The models behind `spillover sim MODEL` and `spillover exact MODEL`, one module each with
`configure(parser)` and `run(options) -> exit status`. What they compute is in `spillover.sim`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A model: the module under `cli/models` that declares and runs it."""

    module: str
    summary: str


def add_models(parser: argparse.ArgumentParser, models: Mapping[str, Model]) -> None:
    """Declare the models; their modules load what they compute with only when they run."""
    found = parser.add_subparsers(metavar="MODEL", required=True)
    for name, model in models.items():
        module = importlib.import_module(f"{__name__}.{model.module}")
        summary = model.summary
        sub = found.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        module.configure(sub)
        sub.set_defaults(model=module.run)


def run_model(options: argparse.Namespace) -> int:
    """Run the model that was named; its exit status."""
    status: int = options.model(options)
    return status
