"""Traces of requests (OpenTelemetry): what happens to those that are sampled, and spans of it.

`watching` looks on while the shell obeys the machine, and knows nothing of OpenTelemetry; what
does, and so needs the extra, is in `sampling`, `spans`, `sending` and `telemetry`.
"""
