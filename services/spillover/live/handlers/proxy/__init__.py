"""Any service as it is: the handler `proxy:URL`."""
