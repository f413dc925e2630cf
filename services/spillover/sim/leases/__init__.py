"""Lease groups in virtual time: the machines of `core.leases`, a store, links and faults."""
