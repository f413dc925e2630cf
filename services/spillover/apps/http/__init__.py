"""From the bytes of a connection to the console: what the services have in common over HTTP."""
