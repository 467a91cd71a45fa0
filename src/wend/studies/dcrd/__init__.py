"""The dcrd paper: routing around failing links."""
