"""The traces of requests (OpenTelemetry): what happens to those that are sampled, and spans of it.

`watching` looks on while the shell obeys the machine, and knows nothing of OpenTelemetry. The
modules that do, and so need the extra, are `sampling`, `spans`, `sending` and `telemetry`.
"""
