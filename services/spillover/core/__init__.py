"""State machines: handle(event, now) -> commands, next_deadline(), check().

Everything stateful lives here and nothing asynchronous: no clock, no socket, no global random
source, no await. The shells in `live` and `sim` feed events in and carry commands out; both run
the very same machines. A machine owns its state alone, so a decision is never interleaved.
"""
