"""Delivery: local delivery to the application, and the stored state behind its guarantees."""
