"""What runs on the servers of a cluster: the handlers sleep, spin and python."""
