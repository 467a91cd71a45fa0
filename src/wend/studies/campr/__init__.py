"""The CAMPR thesis: congestion avoidance by planning."""
