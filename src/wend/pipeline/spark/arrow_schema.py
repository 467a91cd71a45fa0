"""Arrow schemas, which a job declares once: its tasks work on Arrow batches, and Spark gets the same schema."""

from typing import Any

import pyarrow as pa


def spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def int_fields(*names: str) -> list[pa.Field]:
    """Columns of whole numbers."""
    return [pa.field(name, pa.int64()) for name in names]
