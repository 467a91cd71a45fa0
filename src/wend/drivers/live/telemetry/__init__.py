"""Telemetry of a live peer: `recorder.py` collects rows, `segments.py` writes them, `ship.py` copies closed segments.

`model/telemetry.py` has the tables. A peer imports this package only if its file asks for telemetry.
"""
