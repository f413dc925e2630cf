"""The models behind `spillover sim MODEL` and `spillover exact MODEL`, one module each with
`configure(parser)` and `run(options) -> Answer`. What they compute is in `spillover.sim`.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What a model says: `figures` with --json, else what `show` prints."""

    figures: dict[str, Any]
    show: Callable[[], None]


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
        sub.add_argument("--json", action="store_true", help="one JSON object on stdout")
        sub.set_defaults(model=module.run)


def run_model(options: argparse.Namespace) -> int:
    """Run the model that was named, and tell what it says."""
    answer: Answer = options.model(options)
    if options.json:
        print(json.dumps(answer.figures))
    else:
        answer.show()
    return 0
