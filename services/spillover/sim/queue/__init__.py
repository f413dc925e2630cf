"""The distributed queue in virtual time: by its pseudo-code, compiled (`compiled`), and the very
machines of the service (`full`), also with all that may go wrong around them (`history`).
"""
