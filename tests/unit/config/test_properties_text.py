"""Properties that are written are read as they were."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.config.properties import format_properties
from tests.support.whole_steps import parse_properties


@pytest.mark.parametrize(
    "value",
    [
        "", "plain", " begins and ends ", "a=b:c", "#no comment", "!no comment", "back\\slash\\",
        "two\nlines\r\n", "\ttab\f", "ä 🦉 \u2028",
    ],
)  # fmt: skip
def test_what_is_written_is_read(value):
    properties = {"name": value, "listener.name.x:y z=1": value, "#key": "1", "last": "2"}
    assert parse_properties(format_properties(properties)) == properties


@given(st.dictionaries(st.text(), st.text()))
@example({" ": "of a space", "a ": " ", "\x1e": "\x1e", "\t": "\t "})
def test_any_keys_and_values_are_read_as_they_were_written(properties):
    assert parse_properties(format_properties(properties)) == properties
