"""The service of one producer of the distributed queue."""
