"""The options of a command, as its own parser declares them. Why each default is what it is stands
in `option_reasons`."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Mapping

from docs.declared import Entry, paragraphs, shown, unit_of
from docs.option_reasons import REASONS
from spillover.cli.commands import COMMANDS

_DEFAULT_IN_HELP = re.compile(r"\s*\(default:? ([^()]*)\)$")


def options_of(command: str, more: Mapping[str, Entry] | None = None) -> list[Entry]:
    """Each argument of a command, such as `lease run`. `more` knows options by their names that
    are fields declared elsewhere."""
    parser, known = _parser_of(command), more or {}
    return [_entry(command, parser, one, known.get(one.dest)) for one in _actions(parser)]


def names_of(command: str) -> list[str]:
    """Returns how users write the arguments of a command."""
    return [name_of(action) for action in _actions(_parser_of(command))]


def _entry(
    command: str, parser: argparse.ArgumentParser, action: argparse.Action, declared: Entry | None
) -> Entry:
    name = name_of(action)
    text = " ".join(((action.help or "") % {**vars(action), "prog": parser.prog}).split())
    in_help = _DEFAULT_IN_HELP.search(text)
    says = _sentence(_DEFAULT_IN_HELP.sub("", text), action)
    default = _default(action)
    if action.default is None and default is not None and in_help is not None:
        default = in_help[1]
    reason = REASONS.get(f"{command} {name}") or REASONS.get(name) or ""
    takes_value = bool(action.option_strings) and action.nargs != 0 and action.choices is None
    return Entry(
        name=f"{name} {action.metavar or 'VALUE'}" if takes_value else name,
        says=says or (declared.says if declared else ""),
        why=paragraphs(reason) or (declared.why if declared else ""),
        default=default,
        unit=unit_of(action.dest),
        accepts=declared.accepts if declared else _accepts(action),
    )


def name_of(action: argparse.Action) -> str:
    """Returns what users write: the long form of an option, the name of a positional argument."""
    return action.option_strings[-1] if action.option_strings else str(action.metavar)


def _default(action: argparse.Action) -> str | None:
    if action.required or (not action.option_strings and action.nargs is None):
        return None
    match action.default:
        case False:
            return "off"
        case True:
            return "on"
        case (str(host), int(port)):
            return f"`{host}:{port}`"
        case value:
            return shown(value)


def _accepts(action: argparse.Action) -> tuple[str, ...]:
    if action.choices is not None:
        return (" or ".join(f"`{choice}`" for choice in action.choices),)
    says = inspect.getdoc(action.type) if inspect.isfunction(action.type) else None
    if says is None:
        return ()
    first = says.partition("\n\n")[0].removeprefix("Returns ").rstrip(".")
    return (first if first[1:2].isupper() else first[0].lower() + first[1:],)


def _sentence(text: str, action: argparse.Action) -> str:
    """Help as a sentence of a page. Names of choices and addresses stay as they are."""
    if not text:
        return ""
    first = text.split(maxsplit=1)[0]
    is_word = "://" not in first and first not in (action.choices or ())
    return f"{text[0].upper() if is_word else text[0]}{text[1:].rstrip('.')}."


def _parser_of(command: str) -> argparse.ArgumentParser:
    name, *rest = command.split()
    parser = argparse.ArgumentParser(prog=f"spillover {name}")
    importlib.import_module(COMMANDS[name].module).configure(parser)
    for part in rest:
        (below,) = (one for one in parser._actions if isinstance(one.choices, dict))  # noqa: SLF001
        parser = dict(below.choices or {})[part]
    return parser


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """But for the help, and commands below it, which have options of their own. A parser has no
    public way to tell what it was told."""
    return [
        action
        for action in parser._actions  # noqa: SLF001
        if action.dest != "help" and not isinstance(action.choices, dict)
    ]
