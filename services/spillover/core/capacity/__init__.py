"""The capacity of a service, learned from how requests end."""
