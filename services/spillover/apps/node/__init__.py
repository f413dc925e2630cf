"""The service of one cluster node (docs/http.md)."""
