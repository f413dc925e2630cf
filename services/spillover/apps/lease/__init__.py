"""The service of one member of a lease group: what it and its group do, and handing over."""
