"""Files on Linux and on macOS: the same promise by other calls."""

import errno
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
def test_busy_kernel_is_a_socket_that_blocks(descriptor, pair, number):
    with pytest.raises(BlockingIOError):
        files.send_or_copy(pair[0].fileno(), descriptor, 0, 10, send=fails_with(number))


def test_bytes_that_the_kernel_does_not_send_go_through_memory(descriptor, pair):
    assert files.send_or_copy(pair[0].fileno(), descriptor, 7, 20, send=fails_with(errno.ENOTSUP)) == 20
    assert pair[1].recv(100) == CONTENT[7:27]


def test_lost_peer_is_an_error_and_nothing_is_copied(descriptor, pair):
    with pytest.raises(BrokenPipeError):
        files.send_or_copy(pair[0].fileno(), descriptor, 0, 10, send=fails_with(errno.EPIPE))
    with pytest.raises(BlockingIOError):
        pair[1].recv(1, socket.MSG_DONTWAIT)


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


def test_device_without_cache_flush_is_synced(descriptor):
    synced = []
    files.flush_device(descriptor, full_sync=fails_with(errno.ENOTSUP), plain_sync=synced.append)
    assert synced == [descriptor]


def test_failed_cache_flush_is_an_error_and_not_repeated(descriptor):
    synced = []
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        files.flush_device(descriptor, full_sync=fails_with(errno.EIO), plain_sync=synced.append)
    assert not synced


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


class Limits:
    """Limits of open files, as macOS has them unless it is said: no hard one, and one above it that is not told."""

    def __init__(self, soft, hard=resource.RLIM_INFINITY):
        self.now = (soft, hard)

    def read(self, _):
        return self.now

    def write(self, _, limits):
        if not 0 <= limits[0] <= files.OPEN_FILES_MACOS:
            raise ValueError("not allowed to raise maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "raised"), [(256, files.OPEN_FILES_MACOS), (20_000, 20_000)], ids=["below", "above"]
)
def test_unlimited_open_files_are_raised_to_the_systems_maximum(soft, raised):
    limits = Limits(soft)
    assert files.raise_open_files(limits.read, limits.write) == raised
    assert limits.now == (raised, resource.RLIM_INFINITY)


def test_soft_limit_of_open_files_is_raised_to_the_hard_one():
    limits = Limits(1024, 4096)
    assert files.raise_open_files(limits.read, limits.write) == 4096
    assert limits.now == (4096, 4096)


def test_limit_of_open_files_that_cannot_be_raised_stays():
    def refuse(*_):
        raise ValueError("not allowed")

    assert files.raise_open_files(Limits(1024, 4096).read, refuse) == 1024
