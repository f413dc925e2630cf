"""The demo of streams: `show` is the script, to be copied from, and `service` is what streams."""
