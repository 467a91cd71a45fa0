"""Planning: choosing the routes of flows such that no message is dropped (docs/explanation/planning.md)."""
