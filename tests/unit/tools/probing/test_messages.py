"""Requests from plain values."""

from __future__ import annotations

import pytest

from barnabas.tools.probing.messages import make


def test_nested_values_become_messages() -> None:
    request = make("ListOffsets", 1, {"topics": [{"name": "t", "partitions": [{"timestamp": -2}]}]})
    assert request.topics[0].partitions[0].timestamp == -2


def test_what_a_version_does_not_have_is_left_out_at_any_depth() -> None:
    values = {"isolation_level": 1, "topics": [{"name": "t", "partitions": [{"max_num_offsets": 7}]}]}
    new, old = make("ListOffsets", 2, values), make("ListOffsets", 0, values)
    assert (new.isolation_level, new.topics[0].partitions[0].max_num_offsets) == (1, 1)
    assert (old.isolation_level, old.topics[0].partitions[0].max_num_offsets) == (0, 7)


def test_a_name_that_no_version_has_is_a_mistake() -> None:
    with pytest.raises(AttributeError, match="no field 'topicz'"):
        make("Metadata", 1, {"topicz": []})
