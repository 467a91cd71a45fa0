"""Strategies: a folder each, with the parts that several share beside them; `registry.py` names every plug-in."""
