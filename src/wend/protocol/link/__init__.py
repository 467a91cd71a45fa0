"""The link layer: how a message reaches a neighbour."""
