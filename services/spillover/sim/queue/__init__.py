"""The distributed queue in virtual time: by its pseudo-code, compiled (`compiled`), and the very
machines of the service (`full`).
"""
