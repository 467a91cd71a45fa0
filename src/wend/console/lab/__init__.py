"""`wend lab`: an emulated network for real processes, and measurements on it."""
