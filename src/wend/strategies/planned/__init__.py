"""Delivery graphs in the shares that a plan states."""
