"""Requests from plain values."""

from __future__ import annotations

import pytest

from barnabas.tools.probing.messages import make


def test_a_name_that_no_version_has_is_a_mistake() -> None:
    with pytest.raises(AttributeError, match="no field 'topicz'"):
        make("Metadata", 1, {"topicz": []})
