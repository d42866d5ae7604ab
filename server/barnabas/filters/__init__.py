"""Filters of records: text, RE2 and comparisons of JSON paths over decoded keys, values and headers. Pure.

    matches = compile_filter('$.total > 60 and $.customer = "ann"').matches

The rule: author and producer are both foreign. A filter is bounded when it is read (characters, depth) and when it meets a
record (`STEPS_MAX` steps); regular expressions are RE2's. The language: docs/reference/filters.md.
"""

from barnabas.filters.columns import texts_of
from barnabas.filters.errors import FilterError, FilterLimitError
from barnabas.filters.grammar import FILTER_CHARS_MAX, compile_columns, compile_filter
from barnabas.filters.nodes import PLACES, STEPS_MAX, Node, Search
from barnabas.filters.values import Content, Fields

__all__ = [
    "FILTER_CHARS_MAX",
    "PLACES",
    "STEPS_MAX",
    "Content",
    "Fields",
    "FilterError",
    "FilterLimitError",
    "Node",
    "Search",
    "compile_columns",
    "compile_filter",
    "texts_of",
]
