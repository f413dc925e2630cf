"""What claims on figures come to."""

from __future__ import annotations


class Verdicts(list):
    """Which claims hold; and what was measured, in words."""

    def __init__(self, found):
        found = list(found)
        super().__init__(claim.holds for claim in found)
        self.measured = [claim.measured for claim in found]
