"""The prefix cache of one engine: blocks of prompts, of which the least recently used make room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from spillover.model.prompt import BLOCK_TOKENS


class PrefixCache:
    """Holds full blocks only. What counts as found is a prompt's beginning without a gap."""

    def __init__(self, tokens: int) -> None:
        self._limit = tokens // BLOCK_TOKENS
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def found(self, blocks: Sequence[int], tokens: int) -> int:
        """Returns how many of a prompt's tokens need not be read again: all but one at most, since
        the last one is read for its answer."""
        known = 0
        for block in blocks:
            if block not in self._blocks:
                break
            known += 1
        return min(known * BLOCK_TOKENS, tokens - 1)

    def enter(self, blocks: Sequence[int]) -> None:
        """Takes in a prompt that was read. Its beginning is used last, so that ends go first."""
        held = self._blocks
        for block in reversed(blocks):
            held[block] = None
            held.move_to_end(block)
        while len(held) > self._limit:
            held.popitem(last=False)
