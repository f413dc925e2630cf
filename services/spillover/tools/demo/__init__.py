"""The demo: the paper's burst workload against a live federation, and the report about it.

What a run gave is in `model`; running it is wired from the testbed. No decision of a cluster is
taken here.
"""
