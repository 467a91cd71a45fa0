"""Benchmarks of Wend beside references: each result is a ratio, measured in one run on one machine."""
