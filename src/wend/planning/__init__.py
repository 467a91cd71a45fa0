"""Planning: which ways the flows of a network take so that nothing is dropped (docs/planning.md)."""
