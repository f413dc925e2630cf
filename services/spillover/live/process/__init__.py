"""The system around a process of ours: logs, sockets, memory, parents, time of its own."""
