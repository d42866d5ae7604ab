"""Directories in memory: locked while they are in use, removed at the end, swept when their process is gone."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from barnabas.environment.ephemeral import END_SIGNALS, PREFIX, ephemeral_directory, owned_directory, sweep


@pytest.fixture
def signals():
    before = [signal.getsignal(number) for number in END_SIGNALS]
    yield before
    assert [signal.getsignal(number) for number in END_SIGNALS] == before


def test_a_directory_lasts_as_long_as_the_block(tmp_path: Path, signals) -> None:
    with ephemeral_directory(str(tmp_path)) as path:
        Path(path, "file").write_text("x")
        assert os.path.basename(path).startswith(PREFIX)
        assert os.stat(path).st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_a_directory_goes_with_a_block_that_fails(tmp_path: Path, signals) -> None:
    def fail() -> None:
        with ephemeral_directory(str(tmp_path)):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", END_SIGNALS)
def test_early_signal_removes_the_directory(tmp_path: Path, signals, number: signal.Signals) -> None:
    def hit() -> None:
        with ephemeral_directory(str(tmp_path)):
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 0)  # the handler runs before the next statement at the latest

    with pytest.raises(SystemExit) as ended:
        hit()
    assert ended.value.code == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_only_what_nobody_uses_is_swept(tmp_path: Path, signals) -> None:
    unused = tmp_path / f"{PREFIX}left"
    unused.mkdir()
    (unused / "file").write_text("x")
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / f"{PREFIX}file").write_text("x")
    (tmp_path / f"{PREFIX}link").symlink_to(other)
    with ephemeral_directory(str(tmp_path)) as path:
        assert sweep(str(tmp_path)) == []
        assert os.path.isdir(path)
    assert not unused.exists()
    assert other.exists()
    assert {entry.name for entry in tmp_path.iterdir()} == {"other", f"{PREFIX}file", f"{PREFIX}link"}


def test_directory_swept_before_its_lock_is_created_again(tmp_path, signals) -> None:
    locked = []

    def sweep_first(descriptor: int, operation: int) -> None:
        if not locked:
            locked.append(descriptor)
            assert len(sweep(str(tmp_path))) == 1
        fcntl.flock(descriptor, operation)

    with ephemeral_directory(str(tmp_path), lock_file=sweep_first) as path:
        assert os.path.isdir(path)
        assert [entry.name for entry in tmp_path.iterdir()] == [os.path.basename(path)]


@pytest.mark.parametrize("make", [ephemeral_directory, owned_directory])
def test_directory_is_in_memory_if_that_is_writable(make, tmp_path, signals) -> None:
    memory, named = tmp_path / "memory", tmp_path / "named"
    for path in (memory, named):
        path.mkdir()
    with make(memory=str(memory)) as path:
        assert Path(path).parent == memory
    with make(memory=str(tmp_path / "not there")) as path:
        assert Path(path).parent == Path(tempfile.gettempdir())
    with make(str(named), memory=str(memory)) as path:
        assert Path(path).parent == named


def test_directory_leaves_signals_to_a_program_that_has_handlers(tmp_path, signals) -> None:
    unused = tmp_path / f"{PREFIX}left"
    unused.mkdir()
    with owned_directory(str(tmp_path)) as path:
        assert [signal.getsignal(number) for number in END_SIGNALS] == signals
        Path(path, "file").write_text("x")
        assert [entry.name for entry in tmp_path.iterdir()] == [os.path.basename(path)]
        assert sweep(str(tmp_path)) == [], "it is locked"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [ephemeral_directory, owned_directory])
def test_no_descriptor_stays_open(make, tmp_path, signals) -> None:
    (tmp_path / f"{PREFIX}left").mkdir()
    before = os.listdir("/dev/fd")
    with make(str(tmp_path)):
        assert len(os.listdir("/dev/fd")) == len(before) + 1
    assert os.listdir("/dev/fd") == before


def test_a_signal_that_is_ignored_stays_ignored(tmp_path, signals) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ephemeral_directory(str(tmp_path)) as path:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0)  # handlers run
            assert os.path.isdir(path)
    finally:
        signal.signal(signal.SIGHUP, before)
