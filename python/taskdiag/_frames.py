# SPDX-License-Identifier: MIT OR Apache-2.0
"""A table as a data frame of pandas, with types that keep each value as it is."""


def to_pandas(table):
    """The table as a DataFrame."""
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError as e:
        raise ImportError("to_pandas() needs pandas: pip install pandas") from e
    try:
        import pyarrow  # type: ignore[import-untyped]
    except ImportError:
        columns = {column.name: _series(pandas, column.type, table[column.name]) for column in table.schema}
        # Without rows, too, the columns are there with their types.
        return pandas.DataFrame(columns, columns=table.columns)
    # NumPy has no missing integer, and a float cannot hold 2**64-1.
    types = {pyarrow.uint64(): pandas.UInt64Dtype(), pyarrow.int64(): pandas.Int64Dtype(), pyarrow.bool_(): pandas.BooleanDtype()}
    frame = pyarrow.table(table).to_pandas(types_mapper=types.get)
    for column in table.schema:
        if column.type.startswith("list"):
            frame[column.name] = _series(pandas, column.type, table[column.name])
    return frame


NULLABLE = {"uint64": "UInt64", "int64": "Int64", "bool": "boolean", "float64": "float64"}


def _series(pandas, kind, values):
    if kind in NULLABLE:
        return pandas.Series(values, dtype=NULLABLE[kind])
    if kind == "duration[ns]":
        return pandas.Series(pandas.to_timedelta(pandas.Series(values, dtype="float64"), unit="s"))
    if kind.startswith("timestamp"):
        return pandas.Series(pandas.to_datetime(pandas.Series(values, dtype="float64"), unit="s", utc=True))
    if kind == "utf8" and any(value is not None for value in values):
        # As in Arrow, other bytes are U+FFFD: some types of text cannot have them.
        return pandas.Series([value and value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for value in values])
    return pandas.Series(values, dtype="object")
