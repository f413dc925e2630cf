"""The value of one prompt: how much work a request brings to an engine, and what of it lies in
blocks that the engine may have in its cache. Who decides where it runs is in `policy/affinity`.
"""

from __future__ import annotations

from typing import NamedTuple

BLOCK_TOKENS = 512
"""The number of prompt tokens of one block, as published traces cut them."""


class Prompt(NamedTuple):
    """A request to an inference engine. Equal block ids stand for equal prefixes."""

    time_s: float
    tokens: int
    """The number of prompt tokens, at least 1."""
    answer_tokens: int
    """The number of tokens that are generated, at least 1."""
    blocks: tuple[int, ...]
    """The ids of the prompt's full blocks, from its beginning on."""
    session: int
    """The number of the session, above 0: prompts of one session share a prefix."""
