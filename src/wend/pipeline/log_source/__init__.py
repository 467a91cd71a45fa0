"""Logs of peers as a data source of Spark, and events as its sink: `format("wend")`."""
