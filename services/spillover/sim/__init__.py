"""The other shell: the same machines as the services, under a virtual clock.

No socket, no asyncio, no rule of its own: what a cluster does is decided in `core`.
"""
