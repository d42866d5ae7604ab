"""`select` as macOS has it: no epoll, and a kqueue that is made of one."""

import errno
import importlib.machinery
import os
import select
import sys
from collections.abc import Iterable
from types import ModuleType

KQ_FILTER_READ, KQ_FILTER_WRITE, KQ_FILTER_PROC = -1, -2, -5
KQ_EV_ADD, KQ_EV_DELETE, KQ_EV_ENABLE, KQ_EV_DISABLE, KQ_EV_ONESHOT, KQ_EV_CLEAR = 1, 2, 4, 8, 16, 32
KQ_EV_ERROR, KQ_EV_EOF = 0x4000, 0x8000
KQ_NOTE_EXIT = 0x8000_0000
GIVEN = {name: value for name, value in globals().items() if name.startswith("KQ_")}

IN, OUT, ENDED = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP | select.EPOLLERR
MASKS = {KQ_FILTER_READ: IN, KQ_FILTER_WRITE: OUT}
new_epoll, open_process, wait_id, P_PID = select.epoll, os.pidfd_open, os.waitid, os.P_PID
WNOWAIT = os.WEXITED | os.WNOHANG | os.WNOWAIT


class kevent:  # noqa: N801 - its name in `select`
    __slots__ = ("data", "fflags", "filter", "flags", "ident", "udata")

    def __init__(self, ident, filter=KQ_FILTER_READ, flags=KQ_EV_ADD, fflags=0, data=0, udata=0):
        self.ident = ident if isinstance(ident, int) else ident.fileno()
        self.filter, self.flags, self.fflags, self.data, self.udata = filter, flags, fflags, data, udata


class kqueue:  # noqa: N801
    """Filters for descriptors to be read or written, level-triggered or once, and for processes that end."""

    def __init__(self):
        self._epoll = new_epoll()
        self._filters: dict[int, dict[int, kevent]] = {}
        self._processes: dict[int, kevent] = {}

    def __del__(self):
        self.close()

    @property
    def closed(self):
        return self._epoll.closed

    def fileno(self):
        return self._epoll.fileno()

    def close(self):
        while self._processes:
            os.close(self._processes.popitem()[0])
        self._epoll.close()

    def control(self, changelist: Iterable[kevent] | None, max_events: int, timeout: float | None = None):
        for change in changelist or ():
            if change.filter == KQ_FILTER_PROC:
                if change.flags & KQ_EV_DELETE:
                    self._unwatch_process(change)
                else:
                    self._watch_process(change)
            elif change.flags & KQ_EV_DELETE:
                self._delete(change)
            else:
                self._add(change)
        if not max_events:
            return []
        events: list[kevent] = []
        for descriptor, mask in self._epoll.poll(timeout, max_events):
            events += self._events(descriptor, mask)
        return events[
            :max_events
        ]  # what is left out is level-triggered, or has not been deleted: it comes again

    def _events(self, descriptor: int, mask: int) -> list[kevent]:
        if descriptor in self._processes:
            watched = self._processes.pop(descriptor)
            self._epoll.unregister(descriptor)
            os.close(descriptor)
            return [kevent(watched.ident, KQ_FILTER_PROC, watched.flags, KQ_NOTE_EXIT)]
        events = []
        for name, event in list(self._filters.get(descriptor, {}).items()):
            if mask & (MASKS[name] | ENDED):
                flags = event.flags | (KQ_EV_EOF if mask & ENDED else 0)
                events.append(kevent(descriptor, name, flags, udata=event.udata))
                if event.flags & KQ_EV_ONESHOT:
                    self._delete(event)
        return events

    def _add(self, change: kevent) -> None:
        filters = self._filters.setdefault(change.ident, {})
        filters[change.filter] = change
        try:
            self._epoll.modify(change.ident, self._mask(change.ident))
        except FileNotFoundError:  # never added, or closed meanwhile, with which all filters have gone
            self._filters[change.ident] = {change.filter: change}
            self._epoll.register(change.ident, self._mask(change.ident))

    def _delete(self, change: kevent) -> None:
        filters = self._filters.get(change.ident, {})
        if filters.pop(change.filter, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        try:
            if filters:
                self._epoll.modify(change.ident, self._mask(change.ident))
            else:
                del self._filters[change.ident]
                self._epoll.unregister(change.ident)
        except OSError:  # closed meanwhile
            self._filters.pop(change.ident, None)
            raise

    def _mask(self, descriptor: int) -> int:
        return sum(MASKS[name] for name in self._filters[descriptor])

    def _watch_process(self, change: kevent) -> None:
        try:
            has_ended = wait_id(P_PID, change.ident, WNOWAIT) is not None
        except ChildProcessError:  # not a child of this one
            has_ended = False
        if has_ended:  # a process that nobody has waited for yet is none to kqueue
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        descriptor = open_process(change.ident)
        self._processes[descriptor] = change
        self._epoll.register(descriptor, IN)

    def _unwatch_process(self, change: kevent) -> None:
        for descriptor, watched in self._processes.items():
            if watched.ident == change.ident:
                del self._processes[descriptor]
                self._epoll.unregister(descriptor)
                os.close(descriptor)
                return
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


class TrioFinder:
    """A finder that has Trio, which goes by the name of the platform, choose as on BSD what it waits by."""

    def __init__(self):
        self._choosing = {"trio._core", "trio._core._run", "trio._subprocess_platform", "trio.lowlevel"}

    def find_spec(self, fullname, path, target=None):
        if fullname not in self._choosing:
            return None
        self._choosing.remove(fullname)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        spec.loader = AsOnBSD(spec.loader)
        return spec


class AsOnBSD:
    """A loader under which a module sees BSD's name of the platform."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        import ctypes.util  # noqa: F401 - Trio imports it, and it is Linux's

        platform, sys.platform = sys.platform, "freebsd14"
        try:
            self._loader.exec_module(module)
        finally:
            sys.platform = platform


def install() -> None:
    """Take epoll away, and put kqueue there."""
    for name in [name for name in dir(select) if name.startswith(("epoll", "EPOLL"))]:
        delattr(select, name)
    vars(select).update(GIVEN, kevent=kevent, kqueue=kqueue)
    sys.meta_path.insert(0, TrioFinder())
