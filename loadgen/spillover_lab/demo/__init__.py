"""What shows Spillover to people: `run` plays bursts through five clusters, isolated and networked,
`report` is the page on them; `leases` and `streams` are shows of their own.
"""
