"""Host names: what is known of their addresses, and in which order those are tried.

No lookup, no socket: those are in `live.hosts`. The process that renews leases loads this, so
that nothing is imported here which it does without (`typing` and `dataclasses` among others).
"""
