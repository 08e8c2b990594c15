# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes JSON for people and for diffs: a value that fits into a line gets a line of its own, as
each figure and each measurement does."""

import json

WIDTH = 200


def short_json(value, indent=""):
    text = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(text) <= WIDTH and (indent or not isinstance(value, dict)) or not isinstance(value, (dict, list)) or not value:
        return text
    inner = indent + " "
    if isinstance(value, dict):
        items = [f"{inner}{json.dumps(k, ensure_ascii=False)}: {short_json(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + short_json(v, inner) for v in value) + f"\n{indent}]"
