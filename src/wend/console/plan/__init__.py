"""`wend plan`: plans for flows, and their way to running peers."""
