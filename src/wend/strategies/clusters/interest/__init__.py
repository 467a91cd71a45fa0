"""Event distribution inside a cluster and between clusters, by trees or by routes."""
