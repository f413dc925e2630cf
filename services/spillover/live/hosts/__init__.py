"""Connections to hosts by their names: lookups that nothing else waits behind, and sockets to the
first of a host's addresses that answers. What is said on them is not known here.

`lookups`, `attempts` and `blocking` are loaded by the process that renews leases: see `core.hosts`.
"""
