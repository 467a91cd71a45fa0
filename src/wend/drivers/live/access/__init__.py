"""Authentication and authorisation of clients and peers: keys, TLS, tokens, grants, limits."""
