"""Membership plug-ins: who are my peers? One file each; `messages.py` holds what they say to each other."""
