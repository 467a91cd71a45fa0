"""Arrow schemas as Spark's, so that a job declares each schema once. Tasks work on Arrow batches."""

from typing import Any

import pyarrow as pa


def spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
