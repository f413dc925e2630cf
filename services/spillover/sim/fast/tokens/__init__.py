"""Token dispatch, compiled."""
