"""What makes peers run: `sim` (virtual time, faults, oracle) and `live` (sockets, store)."""
