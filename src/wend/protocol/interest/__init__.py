"""Interest plug-ins: they find the subscribers of an event."""
