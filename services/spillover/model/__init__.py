"""Values that every ring shares: ids, requests, reports, topologies, signals, errors.

Plain data and its validation live here. No decision, no state machine, no I/O.
"""
