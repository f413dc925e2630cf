"""What a service bears, learned from what becomes of requests."""
