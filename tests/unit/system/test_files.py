"""Files on Linux and on macOS: the same promise by other calls."""

import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.system import files

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def descriptor(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    with open(path, "r+b") as file:
        yield file.fileno()


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def fails_with(number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    return fail


def received(theirs, size):
    data = b""
    while len(data) < size:
        data += theirs.recv(1 << 20)
    return data


# --- sending ------------------------------------------------------------------------------------------------------


def test_a_part_of_a_file_is_sent_in_as_many_calls_as_it_takes(descriptor, pair):
    ours, theirs = pair
    position, sent = 100, b""
    while position < 400_000:
        try:
            count = files.send_file(ours.fileno(), descriptor, position, 400_000 - position)
        except BlockingIOError:
            sent += received(theirs, position - 100 - len(sent))
            continue
        assert 0 < count <= 400_000 - position
        position += count
    assert sent + received(theirs, position - 100 - len(sent)) == CONTENT[100:400_000]


def test_a_socket_that_takes_nothing_blocks(descriptor, pair):
    for _ in range(1000):
        try:
            assert files.send_file(pair[0].fileno(), descriptor, 0, len(CONTENT))
        except BlockingIOError:
            return
    pytest.fail("it took a thousand times the file")


def test_nothing_is_sent_beyond_the_end_of_a_file(descriptor, pair):
    assert files.send_file(pair[0].fileno(), descriptor, len(CONTENT), 10) == 0


def test_no_bytes_of_a_file_are_none_and_not_all_of_it(descriptor, pair):
    assert files.send_or_copy(pair[0].fileno(), descriptor, 0, 0) == 0
    with pytest.raises(BlockingIOError):
        pair[1].recv(1, socket.MSG_DONTWAIT)


def test_a_file_is_copied_to_the_end_of_another_one(descriptor, tmp_path):
    with open(tmp_path / "copy", "wb") as copy:
        at = 5
        while at < len(CONTENT):
            at += files.send_file(copy.fileno(), descriptor, at, len(CONTENT) - at)
    assert (tmp_path / "copy").read_bytes() == CONTENT[5:]


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EAGAIN])
def test_a_kernel_that_is_busy_is_a_socket_that_blocks(monkeypatch, descriptor, pair, number):
    monkeypatch.setattr(os, "sendfile", fails_with(number))
    with pytest.raises(BlockingIOError):
        files.send_or_copy(pair[0].fileno(), descriptor, 0, 10)


def test_what_the_kernel_does_not_send_goes_through_memory(monkeypatch, descriptor, pair):
    monkeypatch.setattr(os, "sendfile", fails_with(errno.ENOTSUP))
    assert files.send_or_copy(pair[0].fileno(), descriptor, 7, 20) == 20
    assert pair[1].recv(100) == CONTENT[7:27]


def test_a_peer_that_has_gone_is_an_error_and_no_reason_to_copy(monkeypatch, descriptor, pair):
    monkeypatch.setattr(os, "sendfile", fails_with(errno.EPIPE))
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("it was read"))
    with pytest.raises(BrokenPipeError):
        files.send_or_copy(pair[0].fileno(), descriptor, 0, 10)


# --- the medium ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allocate", [files.allocate, files.write_zeros])
def test_a_file_is_extended_with_zeros_and_keeps_what_it_holds(descriptor, allocate):
    size = len(CONTENT) + 3_000_001
    allocate(descriptor, 0, size)
    assert os.fstat(descriptor).st_size == size
    assert os.pread(descriptor, size, 0) == CONTENT + bytes(3_000_001)
    allocate(descriptor, 0, 10)
    assert os.fstat(descriptor).st_size == size
    assert os.fstat(descriptor).st_blocks * 512 >= size


@pytest.mark.parametrize("sync", [files.sync, files.sync_data])
def test_files_and_directories_are_synced(descriptor, tmp_path, sync):
    sync(descriptor)
    directory = os.open(tmp_path, os.O_RDONLY)
    sync(directory)
    os.close(directory)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        sync(directory)


def test_device_without_cache_flush_is_synced(monkeypatch, descriptor):
    synced = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fails_with(errno.ENOTSUP))
    monkeypatch.setattr(os, "fsync", synced.append)
    files.flush_device(descriptor)
    assert synced == [descriptor]


def test_a_device_that_fails_is_not_asked_again_in_another_way(monkeypatch, descriptor):
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fails_with(errno.EIO))
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("the error is forgotten"))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        files.flush_device(descriptor)


# --- locks and names ----------------------------------------------------------------------------------------------


def test_a_lock_keeps_others_of_the_same_process_out(descriptor, tmp_path):
    files.lock(descriptor)
    with open(tmp_path / "file", "r+b") as other, pytest.raises(BlockingIOError):
        files.lock(other.fileno())
    with open(tmp_path / "file", "r+b") as other, pytest.raises(BlockingIOError):
        files.lock(other.fileno(), is_shared=True)


def test_a_lock_is_gone_with_its_file(tmp_path):
    for _ in range(2):
        with open(tmp_path / "lock", "w+b") as file:
            files.lock(file.fileno())


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_a_lock_of_another_process_is_seen_whichever_kind_it_is(descriptor, tmp_path, call):
    if call == "lockf" and files.IS_BSD:
        pytest.skip("on Linux the kinds are apart, so this cannot be simulated there")
    program = (
        f"import fcntl, sys; file = open({str(tmp_path / 'file')!r}, 'r+b'); fcntl.{call}(file, fcntl.LOCK_EX);"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"\n"
        with pytest.raises(BlockingIOError):
            files.lock(descriptor)
        other.send_signal(signal.SIGKILL)


def test_a_machine_has_a_name_for_this_run_of_it():
    assert files.boot_id() == files.boot_id()
    assert len(files.boot_id()) >= 32


def test_data_has_a_temporary_path_readable_by_its_owner():
    with files.as_file(b"secret") as path:
        assert Path(path).read_bytes() == Path(path).read_bytes() == b"secret"
        assert not stat.S_IMODE(os.stat(path).st_mode) & 0o077 or path.startswith("/proc/self/fd/")
    assert not Path(path).exists()


@pytest.fixture
def limits(monkeypatch):
    """Limits of open files as macOS has them: a hard one that is said to be none, and one above it that is not told."""
    now = [256, resource.RLIM_INFINITY]

    def setrlimit(_, wanted):
        if not 0 <= wanted[0] <= files.OPEN_FILES_MACOS:
            raise ValueError("not allowed to raise maximum limit")
        now[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    return now


def test_unlimited_open_files_are_raised_to_the_systems_maximum(limits):
    assert files.raise_open_files() == files.OPEN_FILES_MACOS
    assert limits == [files.OPEN_FILES_MACOS, resource.RLIM_INFINITY]


def test_a_limit_of_open_files_that_is_above_that_stays(limits):
    limits[0] = 20_000
    assert files.raise_open_files() == 20_000
