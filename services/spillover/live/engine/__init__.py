"""What every shell stands on: driving a machine in real time, timers, writes, counters."""
