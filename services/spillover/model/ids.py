"""Names of things. A cluster id is what users write in topology files; a request id is the one
name a request has, wherever it is. Nothing here makes ids: that takes randomness."""

from typing import NewType

ClusterId = NewType("ClusterId", str)
RequestId = NewType("RequestId", str)
