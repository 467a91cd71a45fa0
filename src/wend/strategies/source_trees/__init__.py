"""Trees of shortest delay or fewest hops from each publisher."""
