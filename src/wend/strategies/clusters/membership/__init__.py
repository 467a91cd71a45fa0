"""Cluster membership: the members, the coordinators, and the directory of other clusters."""
