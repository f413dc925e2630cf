"""The models behind `spillover sim MODEL`, one module each with `configure(parser)` and
`run(options) -> ModelResult`. They compute with `spillover.sim`.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from spillover.cli.command import CliCommand
from spillover.commandline.parsing import add_command, add_json


class ModelResult(NamedTuple):
    """The result of a model: `figures` are printed with --json, else `show` prints it."""

    figures: dict[str, Any]
    show: Callable[[], None]


def add_models(parser: argparse.ArgumentParser, models: Mapping[str, CliCommand]) -> None:
    """Declare the models; their modules load what they compute with only when they run."""
    found = parser.add_subparsers(metavar="MODEL", required=True)
    for name, model in models.items():
        module = importlib.import_module(model.module)
        sub = add_command(found, name, model.summary, module.run)
        module.configure(sub)
        add_json(sub, "print one JSON object instead of tables")


def run_model(options: argparse.Namespace) -> int:
    """Run the model that was named, and print its result."""
    result: ModelResult = options.command(options)
    if options.json:
        print(json.dumps(result.figures))
    else:
        result.show()
    return 0
