"""Routing plug-ins: where does an event go next? One file each."""
