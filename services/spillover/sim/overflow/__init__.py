"""Federations in virtual time: the machines of `core.overflow`, links and faults."""
