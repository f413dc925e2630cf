"""Reader of traces of prompts: JSON lines with `timestamp` in ms, `input_length`, `output_length`
and `hash_ids`, as Mooncake has published them; and which sessions the prompts belong to.
docs/affinity.md has the format. What plays them is `sim/affinity`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from spillover.model.errors import InputError
from spillover.model.prompt import BLOCK_TOKENS, Prompt

LINE_LIMIT_BYTES = 1_000_000
PROMPTS_MAX = 1_000_000
TOKENS_MAX = 10_000_000
SHARED = 0.5
"""A prompt goes on with a session if it shares so much of the shorter of both: edits and repeats
stay together, and templates that many use do not glue strangers."""
COMMON = 0.5
"""A first block that so many prompts begin with is a system prompt, which says nothing."""


def read_prompts(path: Path) -> list[Prompt]:
    """Returns the prompts of a trace, with their sessions. Raises InputError that names the line
    and what was expected there."""
    prompts: list[Prompt] = []
    try:
        with path.open("rb") as lines:
            for number in range(1, PROMPTS_MAX + 2):
                line = lines.readline(LINE_LIMIT_BYTES + 1)
                if not line:
                    break
                where = f"line {number}"
                if len(line) > LINE_LIMIT_BYTES or number > PROMPTS_MAX:
                    expected = f"at most {LINE_LIMIT_BYTES} bytes a line and {PROMPTS_MAX} lines"
                    raise InputError(str(path), where, f"expected {expected}")
                prompts.append(_prompt(str(path), where, line))
                if len(prompts) > 1 and prompts[-1].time_s < prompts[-2].time_s:
                    raise InputError(str(path), where, "expected times in order")
    except OSError as error:
        raise InputError(str(path), "", f"expected a readable file: {error.strerror}") from None
    if not prompts or prompts[-1].time_s == prompts[0].time_s:
        raise InputError(str(path), "", "expected prompts at two different times or more")
    return with_sessions(prompts)


def _prompt(source: str, where: str, line: bytes) -> Prompt:
    try:
        fields = json.loads(line)
    except ValueError:
        raise InputError(source, where, "expected one JSON object") from None
    if not isinstance(fields, dict):
        raise InputError(source, where, "expected one JSON object")

    def amount(name: str, least: int, most: int) -> int:
        value: Any = fields.get(name)
        if type(value) is not int or not least <= value <= most:
            expected = f"{name}: expected a whole number from {least} to {most}"
            raise InputError(source, where, f"{expected}, got {str(value)[:60]!r}")
        return value

    tokens = amount("input_length", 1, TOKENS_MAX)
    ids = fields.get("hash_ids")
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise InputError(source, where, "hash_ids: expected a list of whole numbers")
    return Prompt(
        time_s=amount("timestamp", 0, 10**12) / 1e3,
        tokens=tokens,
        answer_tokens=max(1, amount("output_length", 0, TOKENS_MAX)),
        blocks=tuple(ids[: tokens // BLOCK_TOKENS]),
        session=0,
    )


def with_sessions(prompts: list[Prompt]) -> list[Prompt]:
    """Returns the prompts with the sessions that their blocks tell: a prompt goes on with that of
    the latest one before it that has its deepest known block, if they share enough."""
    firsts = Counter(prompt.blocks[0] for prompt in prompts if prompt.blocks)
    common = {block for block, count in firsts.items() if count > COMMON * len(prompts)}
    latest: dict[int, int] = {}
    joined: list[Prompt] = []
    sessions = 1
    for place, prompt in enumerate(prompts):
        own = (
            prompt.blocks[1:] if prompt.blocks[:1] and prompt.blocks[0] in common else prompt.blocks
        )
        deepest = next((at for at in range(len(own), 0, -1) if own[at - 1] in latest), 0)
        session = sessions
        if deepest:
            before = joined[latest[own[deepest - 1]]]
            length = len(before.blocks) - (before.blocks[0] in common)
            if deepest >= SHARED * min(length, len(own)):
                session = before.session
        sessions += session == sessions
        latest.update((block, place) for block in own)
        joined.append(prompt._replace(session=session))
    return joined
