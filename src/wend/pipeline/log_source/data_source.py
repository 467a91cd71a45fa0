"""The data source `wend` of Spark. Spark imports this module in every session that looks for data sources, so the rest
is imported when it is used."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class WendDataSource(DataSource):
    """Logs of peers."""

    @classmethod
    def name(cls) -> str:
        return "wend"

    def schema(self) -> str:
        from wend.pipeline.log_source.event_columns import DEFAULT_SCHEMA

        return DEFAULT_SCHEMA

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from wend.pipeline.log_source.batch_reader import LogBatchReader
        from wend.pipeline.log_source.options import read_options

        return LogBatchReader(read_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from wend.pipeline.log_source.options import read_options
        from wend.pipeline.log_source.stream_reader import LogStreamReader

        return LogStreamReader(read_options(self.options, is_stream=True), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from wend.pipeline.log_source.event_writer import EventBatchWriter
        from wend.pipeline.log_source.options import write_options

        return EventBatchWriter(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from wend.pipeline.log_source.event_writer import EventStreamWriter
        from wend.pipeline.log_source.options import write_options

        return EventStreamWriter(write_options(self.options), schema, overwrite)
