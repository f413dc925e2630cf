"""The service of one cluster node (contract, section 4)."""
