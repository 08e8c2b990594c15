# SPDX-License-Identifier: MIT OR Apache-2.0
from collections.abc import Iterable
from typing import Any

class Row(tuple[Any, ...]):
    """A row of a table: a tuple whose values also have the names of their columns, as `row.pid`.

    A name that is no attribute of Python, such as `%cpu`, is in `_fields` and `_asdict()` only."""

    _fields: tuple[str, ...]
    def _asdict(self) -> dict[str, Any]:
        """The values by column."""
    def __getattr__(self, name: str) -> Any: ...

def row_class(names: Iterable[str]) -> type[Row]:
    """The class for rows with these columns."""
