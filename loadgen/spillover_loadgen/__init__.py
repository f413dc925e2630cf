"""The load generator: schedules of requests, sent at their intended instants, and what came back.

It stands outside the services and knows of them only the values in `spillover.model` and the
HTTP client in `spillover.live.http1.client`. Nothing of a node or of a policy lives here.
"""
