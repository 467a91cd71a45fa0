"""Events meet subscriptions at the owners of their values on a ring."""
