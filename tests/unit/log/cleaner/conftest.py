"""The fixture of all tests of cleaning."""

import pytest

from tests.support.cleaning import COMPACTED
from tests.support.logs import Broker


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path, segment_bytes=1_000, index_interval_bytes=100, **COMPACTED)
