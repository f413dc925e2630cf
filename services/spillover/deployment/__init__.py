"""Topologies as deployments: compose files and Kubernetes manifests, as text.

Nothing here starts anything or asks an engine: what is written is for others to run.
"""
