"""Who may connect to a peer and what they may do: keys, TLS, tokens, grants, limits."""
