"""Who may speak: identities, certificates, and sealed sessions between peers, without IO, clock or randomness."""
