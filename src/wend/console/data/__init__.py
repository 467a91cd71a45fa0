"""`wend data`: Spark jobs on files."""
