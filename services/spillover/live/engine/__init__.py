"""The base of every shell: driving a machine in real time, timers, writes, counters."""
