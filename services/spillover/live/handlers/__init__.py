"""What runs on the servers of a cluster: the handlers sleep, spin, python and http."""
