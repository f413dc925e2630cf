"""The demo of streams: three sites in front of services that stream, one of which dies.

`service` is what streams, `run` the story, `model` what comes of it, `display` how that is shown.
"""
