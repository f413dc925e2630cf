"""`/docs` of a service: its OpenAPI as a page for people, made here, without a script and without
anything from other hosts, so that it works behind a firewall.
"""
