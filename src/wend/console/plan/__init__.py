"""`wend plan`: make plans for flows, and bring them to running peers."""
