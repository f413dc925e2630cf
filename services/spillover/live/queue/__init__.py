"""The distributed queue on real sockets and disks: what obeys the machines of `core.queue`."""
