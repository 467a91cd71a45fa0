"""The `wend` command."""
