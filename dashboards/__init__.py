"""What people look at: boards for Grafana, made from code, and alert rules for Prometheus.

Nothing here runs in a service. Metrics are named in `spillover.model.signals.node` and nowhere
else.
"""
