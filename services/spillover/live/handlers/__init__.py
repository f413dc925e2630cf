"""The handlers that run requests on the servers of a cluster: sleep, spin, python, http, proxy and
dask."""
