"""What peers could say: messages made from their declarations (msgspec's types, with the ranges
that these have), most of them spoiled somewhere. Who is told them is the business of tests.

All is drawn from one `Random`. Numbers are drawn from the ends of their ranges, so that what is
valid is as extreme as it may be.
"""

from __future__ import annotations

import functools
import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from random import Random
from struct import pack
from types import ModuleType
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

Make: TypeAlias = Callable[[], Any]

ODD = (
    *(b"null", b"true", b"0", b"-1", b"-0.0", b"1.5", b"1e999", b"-1e999", b"1e-400", b"5e-324"),
    *(b"9007199254740991", b"9007199254740992", b"9007199254740993", b"-9007199254740993"),
    *(b"9223372036854775808", b"18446744073709551616", b"-9223372036854775809", b"2147483649"),
    *(b"1.0000000000000002", b"1000000000.1", b"1.7976931348623157e308", b"1e11", b"1.1e11"),
    *(b"9" * 400, b"1" + b"0" * 400, b"-1" + b"0" * 400, b"1" + b"0" * 5000, b"0" * 40, b"01"),
    *(b"NaN", b"Infinity", b"-Infinity", b"+1", b"0x10", b"1_0", b"nul", b"'a'", b"", b"{", b"]"),
    *(b'""', b'"\\ud800"', b'"\xff"', b'"\x00"', b'"\\u0000"', b'"a\\r\\nB: c"', b'"\\u2028"'),
    *(b'" a"', b'"a|b"', b'"' + b"x" * 64 + b'"', b'"' + b"x" * 5000 + b'"', b'"\\u202e"'),
    *(b"[]", b"{}", b"[null]", b'{"":{}}', b"[[[[[[]]]]]]", b"[" * 200 + b"]" * 200),
    *(b"[" * 2000, b'{"a":' * 500 + b"1" + b"}" * 500, b'"2026-01-01"', b'"1"', b"false"),
)  # fmt: skip
"""What stands in the place of a value, as it is written."""

BROKEN = (
    *(b"", b"\r\n", b"\x00", b"\xff\xfe", b"\xc3", b"}", b"{}", b",", b'"', b"\\"),
    b"\xef\xbb\xbf",
)
"""What gets between bytes."""

WORDS = ("a", "b", "x", "0", "A.b_c-d", "x" * 63, "\u00e9", "a b", "")
"""Texts that are tried where a pattern is to be met."""


class Fuzzed:
    """Makes messages. `words` are texts that mean something where they are told."""

    def __init__(self, seed: object, words: Sequence[str] = ()) -> None:
        self.draw = Random(str(seed))
        self._words = (*words, *words, *WORDS)
        self._makers: dict[Any, Make] = {}
        self.given: Mapping[str, Make] = {}
        """What makes fields where they are not spoiled, by names like `ReportLine.epoch`."""

    def message(self, kind: Any) -> bytes:
        """Returns one of this type as JSON, mostly spoiled."""
        return self.spoiled(self._maker(kind)())

    def valid(self, kind: Any) -> Any:
        """Returns what may be told of this type, before it is written."""
        return self._maker(kind)()

    def spoiled(self, told: Any) -> bytes:
        """Returns it as JSON; of four messages one is left as it is, one is spoiled among its
        bytes, and two in values and fields."""
        how = self.draw.randrange(4)
        if how == 0:
            return self._written(told, 0.0)
        if how == 1:
            return self.broken(self._written(told, 0.0))
        return self._written(told, self.draw.choice((0.02, 0.1, 0.4)))

    def broken(self, message: bytes) -> bytes:
        """Returns bytes that may be no message: cut off, repeated, with others in between."""
        draw, spoiled = self.draw, bytearray(message)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(spoiled) + 1)
            match draw.randrange(5):
                case 0:
                    spoiled[at : at + 1] = bytes((draw.randrange(256),))
                case 1:
                    spoiled[at:at] = draw.choice(BROKEN)
                case 2:
                    del spoiled[at : at + draw.randint(1, 20)]
                case 3:
                    spoiled[at:at] = spoiled[at : at + draw.randint(1, 40)]
                case 4:
                    del spoiled[at:]
        return bytes(spoiled)

    def odd_text(self) -> str:
        """Returns what stands in the place of a text."""
        return self.draw.choice(ODD).decode("latin-1").strip('"') or "x"

    # --- writing ------------------------------------------------------------------------------

    def _written(self, told: Any, rate: float) -> bytes:
        draw = self.draw
        if rate and draw.random() < rate:
            return draw.choice(ODD)
        if isinstance(told, bytes):  # raw JSON
            return told
        if isinstance(told, dict):
            pairs = [(_text(name), self._written(one, rate)) for name, one in told.items()]
            if rate and draw.random() < 2 * rate:
                name = draw.choice(pairs)[0] if pairs and draw.random() < 0.5 else b'"more"'
                pairs = self._shuffled(pairs, (name, draw.choice(ODD)))
            return b"{%b}" % b",".join(b"%b:%b" % pair for pair in pairs)
        if isinstance(told, list | tuple):
            items = [self._written(one, rate) for one in told]
            if rate and draw.random() < rate:
                items = self._shuffled(items, draw.choice(ODD))
            return b"[%b]" % b",".join(items)
        return _text(told)

    def _shuffled(self, told: list[Any], more: Any) -> list[Any]:
        """Without one, with one twice, with this one more, or in another order."""
        draw = self.draw
        match draw.randrange(4):
            case 0 if told:
                del told[draw.randrange(len(told))]
            case 1 if told:
                told.append(draw.choice(told))
            case 2:
                told.append(more)
            case _:
                draw.shuffle(told)
        return told

    # --- making -------------------------------------------------------------------------------

    def _maker(self, kind: Any) -> Make:
        made = self._makers.get(kind)
        if made is None:
            made = self._makers[kind] = self._made(inspect.type_info(kind))
        return made

    def _made(self, kind: Any) -> Make:
        """A KeyError names a type that no message has had yet."""
        makers: dict[type, Callable[[Any], Make]] = {
            inspect.BoolType: lambda _: self._one_of((False, True)),
            inspect.NoneType: lambda _: self._one_of((None,)),
            inspect.IntType: lambda kind: self._one_of(_wholes(kind)),
            inspect.FloatType: lambda kind: self._one_of(_numbers(kind)),
            inspect.StrType: lambda kind: self._one_of(self._texts(kind)),
            inspect.BytesType: lambda _: self._one_of(PACKED),
            inspect.EnumType: lambda kind: self._one_of([one.value for one in kind.cls]),
            inspect.RawType: lambda _: self._one_of((b"null", b"1", b"{}", b"[]", b'"a"')),
            inspect.UnionType: lambda kind: self._either(list(map(self._made, kind.types))),
            inspect.StructType: self._struct,
            inspect.ListType: lambda kind: self._several(self._made(kind.item_type), kind),
            inspect.VarTupleType: lambda kind: self._several(self._made(kind.item_type), kind),
            inspect.DictType: self._pairs,
        }
        return makers[type(kind)](kind)

    def _one_of(self, values: Sequence[Any]) -> Make:
        draw, count = self.draw, len(values)
        return lambda: values[int(draw.random() * count)]

    def _either(self, makers: Sequence[Make]) -> Make:
        choose = self._one_of(makers)

        def either() -> Any:
            return choose()()

        return either

    def _pairs(self, kind: inspect.DictType) -> Make:
        name, value = self._made(kind.key_type), self._made(kind.value_type)
        pairs = self._several(lambda: (name(), value()), kind)
        return lambda: dict(pairs())

    def _several(self, make: Make, kind: Any) -> Make:
        draw = self.draw
        least, most = kind.min_length or 0, kind.max_length or 1000
        counts = (least, least, least + 1, least + 1, least + 2, least + 5)

        def several() -> list[Any]:
            count = most if draw.random() < 0.002 else min(most, draw.choice(counts))
            return [make() for _ in range(count)]

        return several

    def _struct(self, kind: inspect.StructType) -> Make:
        draw = self.draw
        given, name = self.given, kind.cls.__name__
        fields = [
            (one.encode_name, given.get(f"{name}.{one.name}") or self._made(one.type), one.required)
            for one in kind.fields
        ]
        if kind.array_like:
            return lambda: [make() for _, make, _ in fields]
        return lambda: {
            name: make() for name, make, is_needed in fields if is_needed or draw.random() < 0.6
        }

    def _texts(self, kind: inspect.StrType) -> list[str]:
        least, most = kind.min_length or 0, kind.max_length or 300
        texts = [*self._words, "z" * most]
        if kind.pattern is not None:
            pattern = re.compile(kind.pattern)
            texts = [one for one in texts if pattern.search(one)]
        found = [one for one in texts if least <= len(one) <= most]
        assert found, f"no text that is tried meets {kind}"
        return found


PACKED = [
    *("", "no base64!"),
    *(
        b64encode(told).decode()
        for told in (
            *(b"\0", bytes(16), b"\x7f" * 16, b"\xff" * 16, bytes(48), bytes(2**16)),
            *(pack("<4f", *told) for told in ((1.0, 0.5, 9.0, 1e6), (-1.0, 2.0, nan, inf))),
        )
    ),
]
"""Bytes, as JSON has them: of no number, of numbers out of range, too few and too many."""


def _wholes(kind: inspect.IntType) -> list[int]:
    least = -(2**31) if kind.ge is None else int(kind.ge)
    most = 2**53 if kind.le is None else int(kind.le)
    inner = (least, least + 1, least + 2, least + 3, (least + most) // 2, most - 1, most, 0, 1, 7)
    return [one for one in inner if least <= one <= most]


def _numbers(kind: inspect.FloatType) -> list[float]:
    least = -1e300 if kind.ge is None else float(kind.ge)
    most = 1e300 if kind.le is None else float(kind.le)
    above = 0.0 if kind.gt is None else float(kind.gt)
    inner = (least, most, 0.0, 5e-324, 1e-9, 0.1, 0.5, 1.0, 10.0, 1e3, most / 2, most / (1 + 1e-15))
    return [one for one in inner if least <= one <= most and (kind.gt is None or one > above)]


@functools.lru_cache(20_000, typed=True)
def _text(told: Any) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")


def declared_in(*modules: ModuleType) -> list[type[msgspec.Struct]]:
    """Returns the messages that these modules declare."""
    return [
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type)
        and issubclass(one, msgspec.Struct)
        and one.__module__ == module.__name__
    ]
