"""Renewal of partition leases in a process of its own, and what handlers see of their leases.

`renewer.LeaseRenewer` is the member's side, `lease.Lease` the handlers'. The process that renews is
`child`, with `rounds`, `guard`, `resp` and `parent`: it imports only these, the memory and the
clock, and nothing outside this package. Whether a lease is kept is decided in Redis; what a member
does about it in `core.leases.machine`. Nothing is imported here, so that the process stays small.
"""
