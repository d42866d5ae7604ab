"""Points at which tests can kill a process, to show that a crash there loses and repeats nothing.

The rule: every step after which a crash could leave incomplete work has a point here, in the order of a commit. A point has
no effect unless BARNABAS_FAULT names it; then the process that reaches it kills itself, once per marker directory
(BARNABAS_FAULT_ONCE), since the process that takes over passes the same point again. BARNABAS_FAULT_SIGNAL is another
signal than SIGKILL: a process stopped by SIGSTOP resumes after others have done its work.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POINTS = {
    "task.before_read": "worker: nothing was read yet",
    "task.after_block": "worker: some rows are in files that are still open",
    "task.before_close": "worker: all rows were written, no file has its footer",
    "task.before_whole": "worker: a file has its footer, and is not whole in the store",
    "task.after_files": "worker: all files are whole, not announced yet",
    "load.after_plan": "driver: the ranges are decided",
    "load.after_tasks": "driver: all files are there, no entry of the ledger yet",
    "commit.before_catalog": "driver: the entry is in the ledger, the catalog knows nothing of it",
    "commit.before_swap": "driver: the snapshot's files are there, the catalog names the old one",
    "commit.after_swap": "driver: committed, not announced yet",
    "commit.after": "driver: committed, the dead letters are not published yet",
    "dead.before_commit": "driver: the table of dead letters names the old files",
    "dead.after_commit": "driver: the dead letters are published, not announced yet",
    "compact.before_commit": "driver: compacted files are there, the snapshot still names the old ones",
    "compact.after_commit": "driver: the snapshot names the new files, the old ones are still there",
    "publish.before_commit": "driver: a branch was audited, main does not have it yet",
    "publish.after_commit": "driver: main is what the branch was, its dead letters are not published yet",
    "current.after_plan": "driver: it is known which events are new, none was read yet",
    "current.after_buckets": "driver: the files of all changed buckets are there, not named by a commit yet",
    "current.before_commit": "driver: the ledger has an entry, the catalog knows nothing of it",
    "current.after_commit": "driver: the new rows are committed, not announced yet",
    "derived.after_partials": "driver: the partials of a result are merged and written, not named by a commit yet",
    "derived.before_commit": "driver: partials and results are there, no commit names them yet",
    "derived.after_commit": "driver: a result is committed, the files for people are the old ones",
    "derived.during_publish": "driver: one file for people is new, others may be old",
    "mirror.after_topics": "driver: topics of the target are made or grown, not waited for yet",
    "mirror.after_plan": "driver: it is known what the target lacks",
    "mirror.after_fence": "worker: earlier mirrors of a partition are shut out, its position was not asked for yet",
    "mirror.after_resume": "worker: the position is known, nothing is on its way",
    "mirror.after_block": "worker: records are on their way, none was waited for",
    "mirror.before_commit": "worker: all records of a transaction have arrived, it is open",
    "mirror.after_commit": "worker: records and position are committed, not announced yet",
    "mirror.after_tasks": "driver: all is there, not announced yet",
    "mirror.before_groups": "driver: offsets of a group are translated, not committed",
    "mirror.after_groups": "driver: offsets of a group are committed, not announced yet",
}


_acts: dict[str, Callable[[], None]] = {}


@contextmanager
def acting(name: str, act: Callable[[], None]) -> Iterator[None]:
    """Run an action when this process first reaches a point, as another process could at that time."""
    _acts[name] = act
    try:
        yield
    finally:
        _acts.pop(name, None)


def point(name: str) -> None:
    """Kill this process if BARNABAS_FAULT names this point."""
    assert name in POINTS, name
    act = _acts.pop(name, None)
    if act is not None:
        act()
    if os.environ.get("BARNABAS_FAULT") != name:
        return
    once = os.environ.get("BARNABAS_FAULT_ONCE")
    if once:
        try:
            os.close(os.open(os.path.join(once, name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.Signals[os.environ.get("BARNABAS_FAULT_SIGNAL", "SIGKILL")])
