"""The parts that the services share over HTTP, from the bytes of a connection to the console."""
