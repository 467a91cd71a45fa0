"""`wend lab bench`: Wend and other systems, measured on one network under the same failures."""
