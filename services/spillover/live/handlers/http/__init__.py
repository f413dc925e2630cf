"""Servers behind HTTP: the handler `http:URL`."""
