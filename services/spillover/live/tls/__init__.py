"""Certificates: read, checked, made into contexts, and exchanged while a service runs. What is said
on a connection is not known here."""
