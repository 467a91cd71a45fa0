"""Plans of live peers: which one a peer follows, and how a new one reaches all of them."""
