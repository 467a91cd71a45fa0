"""A peer serves clients: local subscriptions, fan-out of deliveries, sessions over TCP."""
