"""The running member of a lease group: carries out what its machine says, on a real Redis."""
