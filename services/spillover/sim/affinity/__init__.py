"""Inference engines that keep what they have read, and sites of them: in virtual time, where a
request goes and how much of its prompt is found in a cache.
"""
