"""Which subscription wants which event: the filter language and the index."""
