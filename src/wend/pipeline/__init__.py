"""Spark jobs: DataFrame in, DataFrame out. The only room that imports pyspark."""
