"""What a process of ours needs of its system: logs, sockets, memory, parents, time of its own."""
