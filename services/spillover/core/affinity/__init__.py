"""The memory of a site for sessions: where each ran last, and how much that has turned out to be
worth. The formulas are in `policy/affinity`."""
