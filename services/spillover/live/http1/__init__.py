"""HTTP/1 at both ends of a connection. What is asked and answered is not known here."""
