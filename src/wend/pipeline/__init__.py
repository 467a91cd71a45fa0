"""Spark jobs: DataFrame in, DataFrame out. The only package that imports pyspark."""
