"""The page `/console`: its files, the live events it is drawn from, and who may operate through it.

What is shown is made by the service that mounts it (`console_view` of the node and of the lease
member); nothing here knows what a cluster or a partition is. Needs no network but its own service.
"""
