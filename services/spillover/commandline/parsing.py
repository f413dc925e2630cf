"""The parser of command lines, of `spillover` and `spillover-loadgen`: usage errors in one line
with the nearest name that would have been right, help with defaults, help alone where a command is
missing.

Types of single values are in `option_types`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from spillover.commandline.option_types import whole_number
from spillover.model.errors import InputError
from spillover.model.nearest import did_you_mean

_NUMBER = re.compile(r"-\d|-\.\d|-inf|-nan")


def add_command(
    commands: Any,
    name: str,
    summary: str,
    run: Callable[..., int] | None = None,
    description: str | None = None,
) -> argparse.ArgumentParser:
    """Returns the parser of one of `commands`, which are those of a parser. Options get `run` as
    `command`; without a description help has the summary."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=description or summary, allow_abbrev=False
    )
    if run is not None:
        parser.set_defaults(command=run)
    return parser


def run_subcommand(options: argparse.Namespace) -> int:
    """Run what `add_command` was given for the command that was named; its exit status."""
    status: int = options.command(options)
    return status


def add_json(
    parser: argparse.ArgumentParser, does: str = "print one JSON object instead of a table"
) -> None:
    """Declare --json."""
    parser.add_argument("--json", action="store_true", help=does)


def add_seed(parser: argparse.ArgumentParser, of: str = "all draws") -> None:
    """Declare --seed, which is 1 unless it is given."""
    parser.add_argument(
        "--seed", type=whole_number, default=1, metavar="N", help=f"the seed of {of}"
    )


class DefaultsFormatter(argparse.HelpFormatter):
    """Help that ends with the default of an option, unless the text names it already."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, default = action.help or "", shown_default(action)
        if default is None or "default" in text:
            return text
        shown = f"(default {default.replace('%', '%%')})"
        return f"{text} {shown}" if text else shown.strip("()")


class OneLineParser(argparse.ArgumentParser):
    """Tells a usage error in one line, as an InputError, without the usage. An option or a command
    that there is not comes first, with the one that may have been meant: what else is wrong often
    follows from it. Without the command that it needs it prints its help and exits 0, as do the
    commands that people know. Options are never abbreviated: a new one would change what they mean.
    """

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", DefaultsFormatter)
        super().__init__(**settings)

    # Any for what argparse overloads.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        if self._commands is not None and not words:
            self.print_help()
            self.exit()
        self._check_options(words)
        options, rest = super().parse_known_args(words, namespace)
        if rest:
            # Here, and not at the end as argparse does: this parser knows its options.
            self._refuse(rest)
        return options, rest

    def error(self, message: str) -> NoReturn:
        raise InputError("usage", "", message.removeprefix("argument "))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        hint = did_you_mean(str(value), known)
        if action is self._commands:
            rest = hint or f", expected one of {', '.join(known)}"
            self.error(f"unknown command {value!r}{rest}")
        problem = f"invalid choice: {value!r}{hint} (choose from {', '.join(known)})"
        raise argparse.ArgumentError(action, problem)

    @property
    def _commands(self) -> argparse.Action | None:
        """Returns the action that takes the name of a command, if there are commands."""
        found = (a for a in self._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001 - it has no public name
        return next(found, None)

    def _check_options(self, words: Iterable[str]) -> None:
        for word in words:
            if word == "--" or self._ends_options(word):
                return  # what follows is no option, or another parser's
            # For argparse a word with a blank in it, or a number, is a value.
            if not word.startswith("-") or word == "-" or " " in word or _NUMBER.match(word):
                continue
            name = word.partition("=")[0] if word.startswith("--") else word[:2]
            if name not in self._option_string_actions:
                self._refuse([word.partition("=")[0]])

    def _ends_options(self, word: str) -> bool:
        """Returns whether the word is the name of a command, or is meant for one. Where a command
        may be left out, other words are values of options."""
        commands = self._commands
        if commands is None or word.startswith("-"):
            return False
        return commands.required or word in (commands.choices or ())

    def _refuse(self, words: Sequence[str]) -> NoReturn:
        first = words[0]
        if first.startswith("-") and len(first) > 1:
            known = (name[2:] for name in self._option_string_actions if name.startswith("--"))
            hint = did_you_mean(first.lstrip("-"), known, prefix="--")
            self.error(f"unknown option {first}{hint or f'; {self.prog} --help names those known'}")
        self.error(f"unrecognized arguments: {' '.join(words)}")


def shown_default(action: argparse.Action) -> str | None:
    """Returns the default as help shows it, or None where there is none that anybody types."""
    default = action.default
    if action.required or isinstance(default, bool):
        return None
    match default:
        case None | argparse.SUPPRESS | [] | "":
            return None
        case int() | float():
            return f"{default:.15g}"
        case str() | Path():
            return str(default)
        case tuple():
            return ":".join(str(part) for part in default)
    return None
