"""Functions as servers: the handler `python:MODULE:FUNCTION`, in threads, processes, coroutines."""
