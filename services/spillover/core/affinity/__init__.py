"""What a site remembers of sessions: where each ran last, and what that has turned out to be worth.
The formulas are in `policy/affinity`.
"""
