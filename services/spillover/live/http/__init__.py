"""The HTTP client of nodes, load generators and sinks. What is asked is not known here."""
