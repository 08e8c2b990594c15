# SPDX-License-Identifier: MIT OR Apache-2.0
"""A table for people: in a terminal, and in a notebook. Both show the first rows only, and little of a long value. What could move the
cursor, or turn text around, is escaped."""

import datetime
import html

# Rows and characters that are shown.
ROWS_OF_TEXT, ROWS_OF_HTML, CHARACTERS = 10, 50, 80


def shown(value, kind):
    """A value as text of one line."""
    if value is None:
        return "None"
    if kind == "duration[ns]":
        return f"{value:.2f} s"
    if kind.startswith("timestamp"):
        return _moment(value)
    if isinstance(value, float):
        return f"{value:.2f}"
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text[: CHARACTERS + 1])
    return text if len(text) <= CHARACTERS else text[:CHARACTERS] + "…"


def _moment(seconds):
    try:
        return datetime.datetime.fromtimestamp(seconds).isoformat(" ", "seconds")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _cells(table, rows):
    """The texts of the first rows, and for each column whether it has numbers."""
    kinds = [column.type for column in table.schema]
    # A character of UTF-8 has up to four bytes.
    cells = [[shown(value, kind) for value, kind in zip(row, kinds)] for row in table._beginning(rows, 4 * (CHARACTERS + 1))]
    return cells, [kind not in ("utf8", "list<utf8>", "list<uint32>", "bool") for kind in kinds]


def _more(table, rows):
    left = len(table) - rows
    return f"… and {left:,} more {'row' if left == 1 else 'rows'}" if left > 0 else ""


def text(table):
    """The first rows below their columns."""
    cells, numbers = _cells(table, ROWS_OF_TEXT)
    lines = [table.columns, *cells]
    widths = [max(map(len, column)) for column in zip(*lines)]
    parts = ("  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(line, widths, numbers)).rstrip()
             for line in lines)
    return "\n".join(filter(None, [repr(table), *parts, _more(table, ROWS_OF_TEXT)]))


def as_html(table):
    """The first rows as a table of HTML."""
    cells, numbers = _cells(table, ROWS_OF_HTML)
    schema = table.schema
    names = [column.name for column in schema]
    heads = "".join(f'<th title="{html.escape(_about(column))}">{html.escape(column.name)}</th>' for column in schema)
    lines = []
    for at, line in enumerate(cells):
        made = []
        for name, cell, right in zip(names, line, numbers):
            style = ' style="text-align: right"' if right else ""
            why = table.why(at, name)
            title = f' title="{html.escape(why)}"' if why is not None else ""
            made.append(f"<td{style}{title}>{html.escape(cell)}</td>")
        lines.append(f"<tr>{''.join(made)}</tr>")
    more = _more(table, ROWS_OF_HTML)
    caption = html.escape(f"{len(table):,} {'row' if len(table) == 1 else 'rows'}")
    return (f'<table class="taskdiag"><caption>{caption}</caption><thead><tr>{heads}</tr></thead>'
            f"<tbody>{''.join(lines)}</tbody></table>{f'<p>{more}</p>' if more else ''}")


def _about(column):
    return f"{column.help} ({column.unit})" if column.unit else column.help
