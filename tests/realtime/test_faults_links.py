"""Links that are lossy and slow in the middle of a burst.

What must hold under all of it is in `support.faults.reckoning`; here is what breaks, and that it
was felt.
"""

from support.faults.breaking import spoiled

ALL = ("ab", "ba", "bc", "cb", "cd", "dc", "da", "ad")


def test_lossy_and_slow(endure):
    """A fifth of everything lost on all links; and all links slow for a while, 300 ms."""
    found = endure(
        {
            "loss 0.2": spoiled(ALL, 3.0, {"loss": 0.0}, loss=0.2),
            "slow 300 ms": spoiled(ALL, 1.0, {"delay_ms": 5.0}, delay_ms=300.0),
        }
    )
    lossy, slow = found.values()
    assert lossy.ends(keyed=True) == {"done"}
    assert lossy.outcomes(keyed=False)["outcome_unknown"] > 0
    assert slow.ends(keyed=True) == slow.ends(keyed=False) == {"done"}
    assert slow.doubled(keyed=True) == 0
