"""The live ring: the asyncio shell around the core, and the only ring with sockets and clocks.

It feeds events into the state machines of `core` and carries out the commands they return.
Nothing here decides where work goes; routes and wiring of whole programs are in `apps` and `cli`.
"""
