"""The connections that forwards share: frames, and the machines of both ends (decision 0048)."""
