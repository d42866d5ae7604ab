"""`os`, `socket`, `fcntl`, the C library and the file system as macOS has them."""

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import sys

GONE_FROM_OS = (
    "O_DIRECT", "O_NOATIME", "O_PATH", "O_TMPFILE", "SCHED_", "MFD_", "EFD_", "SPLICE_", "RWF_", "GRND_", "XATTR_",
    "P_PIDFD", "copy_file_range", "eventfd", "fdatasync", "getrandom", "getresgid", "getresuid", "getxattr", "listxattr",
    "memfd_create", "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "removexattr", "sched_", "setresgid",
    "setresuid", "setxattr", "splice", "waitid",
)  # fmt: skip
STAYS = {"sched_yield", "O_DIRECTORY"}
GONE_FROM_SOCKET = (
    "AF_ALG", "AF_CAN", "AF_NETLINK", "AF_PACKET", "AF_TIPC", "AF_VSOCK", "MSG_CONFIRM", "MSG_ERRQUEUE", "MSG_FASTOPEN",
    "MSG_MORE", "MSG_NOSIGNAL", "MSG_ZEROCOPY", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_BINDTODEVICE", "SO_DOMAIN",
    "SO_INCOMING_CPU", "SO_MARK", "SO_PASSCRED", "SO_PASSSEC", "SO_PEERCRED", "SO_PEERSEC", "SO_PRIORITY", "SO_PROTOCOL",
    "TCP_CONGESTION", "TCP_CORK", "TCP_DEFER_ACCEPT", "TCP_INFO", "TCP_KEEPIDLE", "TCP_LINGER2", "TCP_QUICKACK",
    "TCP_SYNCNT", "TCP_USER_TIMEOUT", "TCP_WINDOW_CLAMP",
)  # fmt: skip
GONE_FROM_FCNTL = ("F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_OFD_", "F_ADD_SEALS", "F_SEAL_")
GONE_FROM_RESOURCE = (
    "prlimit",
    "RUSAGE_THREAD",
    "RLIMIT_MSGQUEUE",
    "RLIMIT_NICE",
    "RLIMIT_RT",
    "RLIMIT_SIGPENDING",
)
GONE_FROM_SIGNAL = ("sigtimedwait", "sigwaitinfo", "SIGCLD", "SIGPOLL", "SIGPWR", "SIGRT", "SIGSTKFLT")
GONE_FROM_C = {"prctl", "mallopt", "malloc_trim", "pidfd_open", "memfd_create"}
HIDDEN = ("/proc", "/sys", "/dev/shm")

F_FULLFSYNC = 51
OPEN_MAX = 10_240
"""Files that a process may ask for, while its hard limit is said to be unlimited."""
SENT_MAX = 50_001
"""Bytes that the simulated `sendfile` takes: less than asked for, as often on BSD."""
BOOT = b"5E2C1B86-0000-4000-8000-00000000B007"

linux_sendfile, linux_fcntl, linux_flock, linux_lockf = os.sendfile, fcntl.fcntl, fcntl.flock, fcntl.lockf
get_limit, set_limit = resource.getrlimit, resource.setrlimit
find_in_library = ctypes.CDLL.__getattr__


def sendfile(out_fd, in_fd, offset, count, headers=(), trailers=(), flags=0):
    """Send to a socket only, fewer bytes than asked for if it takes no more; without a count until the end."""
    if not stat.S_ISSOCK(os.fstat(out_fd).st_mode):
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
    assert not headers
    assert not trailers
    assert not flags
    whole = os.fstat(in_fd).st_size - offset
    return linux_sendfile(out_fd, in_fd, offset, min(count or whole, SENT_MAX))


def control_file(descriptor, command, argument=0):
    """Force a file to the medium by F_FULLFSYNC, where it is one."""
    if command != F_FULLFSYNC:
        return linux_fcntl(descriptor, command, argument)
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    mode = os.fstat(number).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    os.fsync(number)
    return 0


def lockf(descriptor, command, *where):
    """Lock what no `flock` holds, not even one of this process."""
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    if command & (fcntl.LOCK_EX | fcntl.LOCK_SH):
        other = os.open(f"/dev/fd/{number}", os.O_RDONLY)
        try:
            linux_flock(other, command & ~fcntl.LOCK_NB | fcntl.LOCK_NB)
        finally:
            os.close(other)
    return linux_lockf(descriptor, command, *where)


def getrlimit(kind):
    """Say that open files are not limited, where the soft limit is all that may be changed."""
    soft, hard = get_limit(kind)
    return soft, resource.RLIM_INFINITY if kind == resource.RLIMIT_NOFILE and hard >= OPEN_MAX else hard


def setrlimit(kind, limits):
    """Set limits, but for open files above what the system allows."""
    soft, hard = limits
    if kind == resource.RLIMIT_NOFILE and hard == resource.RLIM_INFINITY:
        if not 0 <= soft <= max(OPEN_MAX, get_limit(kind)[0]):
            raise ValueError("not allowed to raise maximum limit")
        hard = get_limit(kind)[1]
    set_limit(kind, (soft, hard))


def sysctlbyname(name, value, size, _new, _new_size):
    """Tell the name of this run of the machine."""
    if name != b"kern.bootsessionuuid":
        return -1
    value.value = BOOT
    size._obj.value = len(BOOT) + 1
    return 0


def find(library, name):
    """Find a function in the C library of macOS."""
    if name == "sysctlbyname":
        return sysctlbyname
    if name in GONE_FROM_C:
        raise AttributeError(f"{name}: symbol not found")
    return find_in_library(library, name)


def is_hidden(path) -> bool:
    """Say whether macOS has no such path."""
    if isinstance(path, os.PathLike):
        path = path.__fspath__()
    if not isinstance(path, str | bytes):
        return False
    text = os.fsdecode(path)
    return text.startswith(HIDDEN) and text.startswith(tuple(f"{hidden}/" for hidden in HIDDEN) + HIDDEN)


def refuse(event, arguments):
    """Raise FileNotFoundError for hidden paths: an audit hook."""
    if event in ("open", "os.listdir", "os.scandir") and is_hidden(arguments[0]):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])


def hiding(function):
    """Return a function of `os` that does not find hidden paths."""

    def find_path(path, *args, **kwargs):
        if is_hidden(path):
            if function.__name__ == "access":
                return False
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return function(path, *args, **kwargs)

    return find_path


def take_away(module, prefixes):
    """Remove all names of a module that begin with one of the prefixes."""
    for name in [name for name in dir(module) if name.startswith(prefixes) and name not in STAYS]:
        delattr(module, name)
        if name in getattr(module, "__all__", ()):
            module.__all__.remove(name)


def install() -> None:
    """Take away what Linux has, and put there what macOS has."""
    assert ctypes.CDLL(None)
    take_away(os, GONE_FROM_OS)
    take_away(socket, GONE_FROM_SOCKET)
    take_away(fcntl, GONE_FROM_FCNTL)
    take_away(resource, GONE_FROM_RESOURCE)
    take_away(signal, GONE_FROM_SIGNAL)
    os.sendfile = sendfile
    resource.getrlimit, resource.setrlimit = getrlimit, setrlimit
    fcntl.F_FULLFSYNC, fcntl.fcntl, fcntl.lockf = F_FULLFSYNC, control_file, lockf
    ctypes.CDLL.__getattr__ = find
    for name in ("access", "stat", "lstat", "readlink"):
        setattr(os, name, hiding(getattr(os, name)))
    sys.addaudithook(refuse)
