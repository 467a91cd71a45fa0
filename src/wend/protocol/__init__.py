"""What a peer does, sans IO: inputs in, effects out. No clock, no socket, no unseeded randomness."""
