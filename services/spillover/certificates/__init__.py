"""Certificates for a federation of one's own: a CA, a leaf for each cluster, their renewal and
their check. What nodes make of them is in `live.tls`."""
