"""Tests of the log write into memory, if they can, for they sync again and again."""

import shutil

import pytest

from tests.support.logs import quick_directory


@pytest.fixture
def tmp_path():
    path = quick_directory()
    yield path
    shutil.rmtree(path)
