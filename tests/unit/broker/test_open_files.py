"""Open files are shared out between sockets and segments."""

import resource

import pytest

from barnabas.broker import open_files


@pytest.fixture
def limits(monkeypatch):
    """The limits of a process that may only be raised to 4096."""
    now = [1024, 4096]

    def setrlimit(_, wanted):
        assert wanted == (4096, 4096)
        now[0] = wanted[0]

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    return now


def test_the_soft_limit_is_raised_to_the_hard_one(limits):
    assert open_files.allow_open_files() == 4096
    assert limits == [4096, 4096]


def test_a_limit_that_cannot_be_raised_is_lived_with(limits, monkeypatch):
    def refuse(*_):
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert open_files.allow_open_files() == 1024


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
