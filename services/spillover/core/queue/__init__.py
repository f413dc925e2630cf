"""The distributed queue's machines: a producer and a consumer. Which producer a probe goes to, and
what it does there, is in `policy.queue`.
"""
