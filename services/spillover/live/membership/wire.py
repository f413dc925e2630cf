"""A configuration as it travels between nodes and lies in the store: JSON by msgspec. What is read
is checked as a file is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Final

import msgspec

from spillover.inputs.topology_file import read_told
from spillover.inputs.value_limits import LIMITS
from spillover.model.configuration import LINEAGE_MAX, Configuration, Stamp
from spillover.model.errors import UNREADABLE, InputError
from spillover.model.ranges import MaybeCluster, Version, Whole
from spillover.model.topology import Topology

LIMIT_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of one configuration: a text of 1 MiB, however it is written in JSON."""


class StampBody(msgspec.Struct, array_like=True, frozen=True):
    """A stamp: `model.configuration.Stamp`."""

    version: Version
    cluster: MaybeCluster
    epoch: Whole


class ConfigurationBody(msgspec.Struct, omit_defaults=True):
    """A configuration. Later versions may say more."""

    stamp: StampBody
    topology: Annotated[str, msgspec.Meta(max_length=LIMITS.characters)]
    lineage: Annotated[tuple[StampBody, ...], msgspec.Meta(max_length=LINEAGE_MAX)] = ()


_decode = msgspec.json.Decoder(ConfigurationBody).decode


def encode_configuration(configuration: Configuration) -> bytes:
    """Returns it as it travels."""
    lineage = tuple(StampBody(*stamp) for stamp in configuration.lineage)
    body = ConfigurationBody(StampBody(*configuration.stamp), configuration.text, lineage)
    return msgspec.json.encode(body)


def decode_configuration(
    said: bytes | str,
    source: str,
    federation: str,
    read: Callable[[str, str, str], Topology] = read_told,
) -> Configuration:
    """Returns what somebody has said that it goes by; a topology without a name is of this
    `federation`. Raises InputError, naming `source`, where it is no configuration."""
    try:
        body = _decode(said)
    except UNREADABLE as error:
        raise InputError(source, "", f"expected a configuration, got: {error}") from None
    stamps = [Stamp(*_parts(told)) for told in (body.stamp, *body.lineage)]
    if any(newer.version != older.version + 1 for newer, older in pairwise(stamps)):
        raise InputError(source, "lineage", "expected versions that follow each other")
    topology = read(body.topology, source, federation)
    return Configuration(stamps[0], topology, body.topology, tuple(stamps[1:]))


def _parts(told: StampBody) -> tuple[int, str, int]:
    return told.version, told.cluster, told.epoch
