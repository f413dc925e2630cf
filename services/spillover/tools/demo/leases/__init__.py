"""The lease demo: real members share streams on Redis while one is killed, one frozen, one added.

`plan` says what happens when, `run` lets it happen, `ownership` and `checking` reckon what came of
it from what was seen from outside, `report` shows it. No partition is given to anybody here.
"""
