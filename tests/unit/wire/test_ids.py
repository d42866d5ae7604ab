"""Texts of ids: what Kafka writes, and what it reads besides."""

from __future__ import annotations

import pytest

from barnabas.wire.ids import parse_uuid, uuid_text

OF_KAFKAS_PAGES = "MkU3OEVBNTcwNTJENDM2Qk"
"""The cluster id in the documentation of Kafka's images: bits of its last letter belong to no byte."""


@pytest.mark.parametrize("value", [bytes(16), bytes(range(16)), b"\xff" * 16])
def test_a_text_stands_for_the_id_it_was_made_of(value):
    assert parse_uuid(uuid_text(value)) == value
    assert parse_uuid(uuid_text(value) + "==") == value


def test_bits_that_belong_to_no_byte_are_not_looked_at():
    assert parse_uuid(OF_KAFKAS_PAGES) == b"2E78EA57052D436B"
    assert {parse_uuid(OF_KAFKAS_PAGES[:-1] + last) for last in "ghijklmnopqrstuv"} == {b"2E78EA57052D436B"}


@pytest.mark.parametrize(
    "text",
    [
        "", "A" * 21, "A" * 23, "A" * 24, "A" * 22 + "=", "A" * 22 + "===", "A" * 20 + "==", "A" * 21 + "+",
        "A" * 21 + "/", "A" * 21 + "\u00e4", " " + "A" * 21, "A" * 22 + "\n", "!" + "A" * 22, "?" * 22, "=" * 22,
    ],
)  # fmt: skip
def test_a_text_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match="is no id"):
        parse_uuid(text)
