"""The running node: carries out what its machine says, and tells it what happens."""
