# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows of a table: tuples with the names of their columns."""

from operator import itemgetter


class Row(tuple):
    """A row of a table: a tuple whose values also have the names of their columns, as `row.pid`.

    A name that is no attribute of Python, such as `%cpu`, is in `_fields` and `_asdict()` only."""

    __module__ = "taskdiag"
    __slots__ = ()
    _fields: tuple = ()

    def _asdict(self):
        """The values by column."""
        return dict(zip(self._fields, self))

    def __repr__(self):
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self))})"

    def __reduce__(self):
        return _row, (self._fields, tuple(self))


def row_class(names):
    """The class for rows with these columns."""
    fields = tuple(names)
    members = {"__slots__": (), "__module__": "taskdiag", "__doc__": Row.__doc__, "_fields": fields}
    for place, name in enumerate(fields):
        if name.isidentifier() and not hasattr(Row, name):
            members[name] = property(itemgetter(place))
    return type("Row", (Row,), members)


def _row(fields, values):
    """A row that was pickled."""
    return row_class(fields)(values)
