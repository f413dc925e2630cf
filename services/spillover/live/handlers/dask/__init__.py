"""Servers of a Dask cluster: the handler `dask:ADDRESS:MODULE:FUNCTION`."""
