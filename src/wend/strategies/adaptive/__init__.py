"""Wend's own strategy: avoids links that are down, and sends a second copy if time is short."""
