"""Every metric as data, by what it is of. Collectors and dashboards read these; no other place
names one.
"""
