"""Networked queues, compiled."""
