"""The ranges of what comes from outside: numbers and texts of reports, loads, answers, questions,
configurations, sessions and records. Each range stands here once, and the declarations of messages
use it, so that a value beyond it is refused where it is read and nothing behind that has to think
of it (decision 0046).

The arithmetic of the policies cannot overflow within these ranges. Sums of as many values as there
can be neighbors fit into 64 bits and into a float.

Not here: limits of what users write in files (`model.limits`), and lengths that belong to one kind
of message alone.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from spillover.model.ids import ClusterId

WHOLE_MAX: Final = 2**53
"""The largest whole number: count, version, epoch, sequence. Why: up to here all are exact in a
float, so in JavaScript, and in Lua, by which records in Redis are compared."""

VERSION_MAX: Final = WHOLE_MAX - 1
"""The largest version of a configuration. Why: the number after it is one, too. It cannot be
reached by changes."""

AHEAD_MAX: Final = 2**31
"""The most requests that wait less idle servers, to either side."""

AMOUNT_MAX: Final = 1e9
"""The largest load, and the most milliseconds of one service. Why: eleven days, and a thousand
million times what a cluster can do; more is a mistake."""

WORK_MAX: Final = 1e18
"""The most work that a place has taken on, or does in a second, in bytes or tokens. Why: thirty
years at thirty gigabytes a second; sums of as many stay exact enough in a float."""

DURATION_MS_MAX: Final = 1e11
"""The longest duration of anything that was measured. Why: three years; a stream that passes
through may last weeks."""

RETRY_AFTER_S_MAX: Final = 86_400.0
"""The longest pause that a server asks for. Why: whoever is told to wait longer than a day looks
again after a day."""

CLUSTERS_MAX: Final = 1000
"""The most clusters of a federation whose topology is read. Why: clients that follow it are told of
each, and a node goes over to another configuration between two requests."""

CLUSTER_PATTERN: Final = r"[A-Za-z0-9._-]{1,63}"
"""The form of the id of a cluster. Why: it ends up in headers, labels, file names and option
values."""

PROBLEM_LENGTH_MAX: Final = 4096
"""The longest words of a node for why work failed. Why: eight times what a handler's may have."""

Whole = Annotated[int, msgspec.Meta(ge=0, le=WHOLE_MAX)]
Version = Annotated[int, msgspec.Meta(ge=0, le=VERSION_MAX)]
Ahead = Annotated[int, msgspec.Meta(ge=-AHEAD_MAX, le=AHEAD_MAX)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=AMOUNT_MAX)]
Work = Annotated[float, msgspec.Meta(ge=0.0, le=WORK_MAX)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0.0, le=DURATION_MS_MAX)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Cluster = Annotated[ClusterId, msgspec.Meta(pattern=rf"\A{CLUSTER_PATTERN}\Z")]
MaybeCluster = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{CLUSTER_PATTERN})?\Z")]
Problem = Annotated[str, msgspec.Meta(max_length=PROBLEM_LENGTH_MAX)]
