"""Open files are shared out between sockets and segments."""

import resource

import pytest

from barnabas.broker import open_files
from barnabas.broker.startup import StartupError


@pytest.mark.parametrize("limit", [128, 1024, resource.RLIM_INFINITY])
def test_raised_limit_of_open_files_is_allowed(limit):
    assert open_files.allow_open_files(lambda: limit) == limit


def test_too_few_open_files_stop_the_start():
    with pytest.raises(StartupError, match="limit of open files is 127, and a broker needs at least 128"):
        open_files.allow_open_files(lambda: 127)


@pytest.mark.parametrize(
    ("limit", "segments"), [(1024, 341), (20_000, 6_666), (1 << 20, 16_384), (resource.RLIM_INFINITY, 16_384)]
)
def test_segments_get_a_third_of_the_files_but_not_any_number(limit, segments):
    assert open_files.open_segments_max(limit) == segments


@pytest.mark.parametrize(
    ("limit", "connections"),
    [
        (128, 32), (256, 107), (1024, 619), (20_000, 13_270), (1 << 20, (1 << 20) - 16_448),
        (resource.RLIM_INFINITY, None),
    ],
)  # fmt: skip
def test_connections_get_what_segments_leave(limit, connections):
    assert open_files.connections_max(limit) == connections
