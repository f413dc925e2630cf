"""Every metric as data, by its subject. Collectors and dashboards read these; no other place names
one."""
