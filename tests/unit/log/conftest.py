"""Where tests of the log write: in memory, if there is such a place, for they sync again and again."""

import shutil

import pytest

from tests.support.logs import quick_directory


@pytest.fixture
def tmp_path():
    path = quick_directory()
    yield path
    shutil.rmtree(path)
