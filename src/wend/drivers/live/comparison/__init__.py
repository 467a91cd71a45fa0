"""Strategies side by side on real sockets, for `wend up`: an overlay for each, and the meters that compare them."""
