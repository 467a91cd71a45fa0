"""Topology-driven overlays: memberships that choose links by traced underlay paths."""
