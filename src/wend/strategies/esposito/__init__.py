"""The scheme that esposito prints, as a strategy of its own beside `clusters`."""
