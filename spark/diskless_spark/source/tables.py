"""The columns of the source, in Spark's terms and in Arrow's."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from diskless_spark.source.options import SourceOptionError

_HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))

_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}


def full_schema(*, include_headers: bool) -> StructType:
    """All columns, as Spark's Kafka source has them."""
    schema = StructType()
    for name, kind in _COLUMNS.items():
        if name != "headers" or include_headers:
            schema = schema.add(name, kind)
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """A query's schema for Arrow: some of the columns, in any order.

    Raises:
        SourceOptionError: there is no such column, or it has another type.
    """
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise SourceOptionError(f"there is no column {field.name!r}; there are {', '.join(_COLUMNS)}")
        if field.dataType != _COLUMNS[field.name]:
            wanted = _COLUMNS[field.name].simpleString()
            raise SourceOptionError(f"the column {field.name} is {wanted}, not {field.dataType.simpleString()}")
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return found
