"""Mappings that users wrote, read as the dataclass that declares their fields.

Names, types and defaults come from the dataclass, so that they stand once. The form of a value, as
far as its type does not say it, is given along (`Forms`); limits, and what must hold between
fields, are the dataclass's own business. Every fault becomes one InputError that names the field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from itertools import pairwise
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_args, get_type_hints

import pydantic
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Tag,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from spillover.inputs.yaml_file import EXACT_INTEGER_LIMIT, describe, describe_as_number
from spillover.inputs.yaml_text import as_written
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.nearest import nearest
from spillover.model.server_bounds import AUTO, ServerBounds

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Values = TypeVar("Values")

Forms: TypeAlias = Mapping[tuple[type, str], Any]
"""The types, with validators, that values of a field have in files, by dataclass and name of
field."""

WHOLE_NUMBER = Annotated[int, pydantic.Field(ge=-EXACT_INTEGER_LIMIT, le=EXACT_INTEGER_LIMIT)]

_EXPECTED_BY_TYPE = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "number_or_list": "a whole number or a list",
    "number_list_or_bounds": "a whole number, a list or auto",
    "finite_number": "a finite number",
    "greater_than_equal": "a whole number of at most 16 digits",
    "less_than_equal": "a whole number of at most 16 digits",
    "string_type": "text",
    "list_type": "a list",
    "model_type": "a mapping of fields",
    "invalid_key": "a field name",
}

_LOOKED_AT = 100
"""The number of faults of one file from which the one to tell is chosen; reading stops after them.
Why: for each misspelled name a better one is searched, and a file can have 100,000 of them."""

_FAULTS = "faults"

_OF_NUMBERS = ("int_type", "float_type", "number_or_list", "number_list_or_bounds")


def fault(expected: str) -> PydanticCustomError:
    """Returns the error of a validator; `expected` is a whole message, braces and all."""
    return PydanticCustomError("expected", "{expected}", {"expected": expected})


def _check_printable(value: str) -> str:
    if not value or not value.isprintable():
        raise fault(f"expected printable text, got {describe(value)}")
    return value


def _check_id(value: object) -> object:
    text = as_written(value)
    if text is None:
        hint = " (put it in quotes)" if isinstance(value, bool) else ""
        raise fault(f"expected an id, got {describe(value)}{hint}")
    return text


def _check_ids(value: object) -> object:
    if not isinstance(value, list):
        raise fault(f"expected a list of ids, got {describe(value)}")
    return value


def _bool_of_word(value: object) -> object:
    """Returns a bool for words that only YAML 1.1 takes for one; ids may be called so."""
    return _WORDS.get(value.lower(), value) if isinstance(value, str) else value


_WORDS = {"yes": True, "on": True, "no": False, "off": False}

PRINTABLE = Annotated[str, AfterValidator(_check_printable)]

ID = Annotated[str, BeforeValidator(_check_id)]
"""An id: text as it is written, also where YAML takes it for a number."""

IDS = Annotated[list[ID], BeforeValidator(_check_ids), AfterValidator(tuple)]

_AS_IN_FILES: dict[object, Any] = {
    int: WHOLE_NUMBER,
    float: Annotated[float, pydantic.Field(allow_inf_nan=False)],
    bool: Annotated[bool, BeforeValidator(_bool_of_word)],
    ClusterId: ID,
}

_NUMBER, _LIST, _BOUNDS = "a number", "a list", "bounds"
"""The kinds of value where one of several is read; they stand in pydantic's locations."""


def _number_or_list(value: object) -> str | None:
    if isinstance(value, list):
        return _LIST
    return _NUMBER if isinstance(value, int) and not isinstance(value, bool) else None


def _number_list_or_bounds(value: object) -> str | None:
    is_bounds = isinstance(value, dict | ServerBounds) or value == AUTO
    return _BOUNDS if is_bounds else _number_or_list(value)


def _usual_bounds(value: object) -> object:
    return {} if value == AUTO else value


_TAGGED_NUMBER: Any = Annotated[WHOLE_NUMBER, Tag(_NUMBER)]
_EITHER = Discriminator(
    _number_or_list, custom_error_type="number_or_list", custom_error_message="neither"
)


_ANY_OF_THREE = Discriminator(
    _number_list_or_bounds,
    custom_error_type="number_list_or_bounds",
    custom_error_message="neither",
)


def file_fields(owner: type[Any]) -> list[Field[Any]]:
    """Returns the fields of a dataclass that files have: those that it is compared by."""
    return [field for field in fields(owner) if field.compare]


def read_values(owner: type[Values], mapping: Mapping[Any, Any], forms: Forms) -> Values:
    """Returns the mapping's values as the dataclass `owner`, those in its lists as theirs.

    Raises InputError without a source, of the fault that tells most.
    """
    try:
        schema = _known_schema(owner, forms)
        return owner(**dict(schema.model_validate(mapping, context=Counter())))
    except ValidationError as error:
        raise _Telling(owner).first_fault(error) from error


_schemas: dict[type[Any], tuple[Forms, type[BaseModel]]] = {}
"""Schemas by dataclass: to make one takes ten times as long as to read a file."""


def _known_schema(owner: type[Any], forms: Forms) -> type[BaseModel]:
    known_forms, schema = _schemas.get(owner, (None, None))
    if schema is None or known_forms is not forms:
        schema = _schema(owner, forms)
        _schemas[owner] = forms, schema
    return schema


def _schema(owner: type[Any], forms: Forms) -> type[BaseModel]:
    hints = get_type_hints(owner)
    types: dict[str, Any] = {
        field.name: (
            forms.get((owner, field.name)) or _as_in_files(hints[field.name], forms),
            ... if field.default is MISSING else field.default,
        )
        for field in file_fields(owner)
    }
    # Strict: no true for 1, no "5" for 5; whole numbers are welcome where floats are.
    config = ConfigDict(extra="forbid", strict=True)
    return pydantic.create_model(owner.__name__, __config__=config, **types)


def _as_in_files(hint: Any, forms: Forms) -> Any:
    """Returns the type that values of a field have in files, by the type that they have in
    memory."""
    match get_args(hint):
        case (of, end) if end is NoneType:
            return _as_in_files(of, forms) | None
        case (of, end) if end is ...:
            return Annotated[list[_as_in_files(of, forms)], AfterValidator(tuple)]  # type: ignore[misc]
        case (number, several) if number is int:
            listed: Any = Annotated[_as_in_files(several, forms), Tag(_LIST)]
            return Annotated[_TAGGED_NUMBER | listed, _EITHER]
        case (number, several, bounds) if number is int:
            listed = Annotated[_as_in_files(several, forms), Tag(_LIST)]
            read: Any = Annotated[
                _as_in_files(bounds, forms), BeforeValidator(_usual_bounds), Tag(_BOUNDS)
            ]
            return Annotated[_TAGGED_NUMBER | listed | read, _ANY_OF_THREE]
    if isinstance(hint, type) and is_dataclass(hint):
        return Annotated[_schema(hint, forms), WrapValidator(partial(_read_one, hint))]
    return _AS_IN_FILES.get(hint, hint)


def _read_one(
    owner: Any,
    value: object,
    read: ValidatorFunctionWrapHandler,
    info: ValidationInfo[Counter[str]],
) -> object:
    """Returns the value as its dataclass. After faults enough it stays as it is: nobody gets it."""
    faults = info.context
    if faults[_FAULTS] > _LOOKED_AT:
        return value
    try:
        parsed = read(value)
    except ValidationError as error:
        faults[_FAULTS] += error.error_count()
        raise
    return owner(**dict(parsed))


class _Telling:
    """The words for the faults of a mapping, by the names of its fields."""

    def __init__(self, owner: type[Any]) -> None:
        self._owner = owner

    def first_fault(self, error: ValidationError) -> InputError:
        """Returns the fault that tells most, and how many more there are. A misspelled field comes
        before the one that is missing for it, which does not count."""
        details = error.errors(include_url=False)[:_LOOKED_AT]
        others = error.error_count() - len(details)
        for detail in details:
            detail["loc"] = _without_tags(detail)
        meant = {
            (*detail["loc"][:-1], self._meant(detail["loc"]))
            for detail in details
            if detail["type"] == "extra_forbidden"
        }
        told = [d for d in details if not (d["type"] == "missing" and d["loc"] in meant)]
        told.sort(key=self._told_after)
        count = len(told) - 1 + others
        more = f" (and {count} more)" if count else ""
        return InputError("", _path(told[0]["loc"]), self._expected(told[0]) + more)

    def _told_after(self, detail: ErrorDetails) -> int:
        """Returns a rank, lower first: names for which there are better ones, then all else, then
        fields that are missing."""
        if detail["type"] == "missing":
            return 2
        if detail["type"] != "extra_forbidden":
            return 1
        return 0 if self._meant(detail["loc"]) else 1

    def _expected(self, detail: ErrorDetails) -> str:
        kind, got = detail["type"], describe(detail["input"])
        match kind:
            case "expected":
                return detail["msg"]
            case "missing":
                return "expected a value, the field is missing"
            case "extra_forbidden":
                return self._unknown_field(detail["loc"])
            case "string_type" if isinstance(detail["input"], bool | int | float):
                # YAML takes true and 1 for other things than text.
                return f"expected text, got {got} (put it in quotes)"
        if kind in _OF_NUMBERS:
            got = describe_as_number(detail["input"])
        return f"expected {_EXPECTED_BY_TYPE.get(kind, detail['msg'])}, got {got}"

    def _unknown_field(self, location: tuple[int | str, ...]) -> str:
        closest = self._meant(location)
        known = ", ".join(self._names_at(location))
        hint = f"did you mean {closest}?" if closest else f"expected one of {known}"
        return f"unknown field, {hint}"

    def _meant(self, location: tuple[int | str, ...]) -> str | None:
        """Returns the field that the unknown one at this place may stand for."""
        return nearest(str(location[-1]), self._names_at(location))

    def _names_at(self, location: tuple[int | str, ...]) -> list[str]:
        owner: Any = self._owner
        for part, after in pairwise(location):
            if isinstance(part, str):  # the others are indexes of lists of dataclasses
                hint = get_type_hints(owner)[part]
                single = [one for one in get_args(hint) if is_dataclass(one)]
                owner = single[0] if single and isinstance(after, str) else _listed(hint)
        return [field.name for field in file_fields(owner)]


def _without_tags(detail: ErrorDetails) -> tuple[int | str, ...]:
    """Returns the place in the user's words. Only an unknown field, which comes last, may have the
    name of a tag."""
    location = detail["loc"]
    own = location[-1:] if detail["type"] == "extra_forbidden" else ()
    rest = location[: len(location) - len(own)]
    return (*(part for part in rest if part not in (_NUMBER, _LIST, _BOUNDS)), *own)


def _listed(hint: Any) -> Any:
    """Returns the dataclass in a hint such as `tuple[Link, ...]` or `int | tuple[Server, ...]`."""
    for argument in get_args(hint):
        found = argument if is_dataclass(argument) else _listed(argument)
        if found is not None:
            return found
    return None


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return "".join(char for char in text.removeprefix(".")[:200] if char.isprintable())
