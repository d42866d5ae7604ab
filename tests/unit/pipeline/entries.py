"""Entries of the ledger of a small table, for the tests of what they come to."""

from __future__ import annotations

from barnabas_pipeline.lake.ledger import DataFile, Entry, PartitionCommit, State, hour_number

IDENTITY = ("c", "logins", "id")


def following(state: State, kind: str = "load", identity: tuple[str, str, str] = IDENTITY) -> Entry:
    """Return an empty entry that follows a state."""
    return Entry(state.version + 1, kind, *identity, state.digest, state.path, {}, {"name": identity[1]})


def covering(start: int, end: int, *, leader_epoch: int = 1, high_watermark: int = -1) -> PartitionCommit:
    """Return what became of offsets that were all loaded."""
    high = end if high_watermark < 0 else high_watermark
    return PartitionCommit(start, end, leader_epoch, high, end - start, 0, 0, 0, 0)


def data_file(path: str, *, hour: str = "2026-11-20T07", rows: int = 1) -> DataFile:
    """Return a file of an hour."""
    return DataFile(path, rows, 99, "f" * 64, "id", 0, [hour_number(hour)])


def applied(state: State, entry: Entry) -> State:
    """Return the state after an entry, as it is read again from what is stored."""
    after = state.copy()
    after.apply(entry)
    entry.after = after.to_dict()
    data = entry.encode()
    return Entry.decode(data).state(f"ledger/{entry.version}", data)


def folded(*entries: Entry) -> State:
    """Return the state after these entries; the chain is made here, so that they need not know it."""
    state = State()
    for entry in entries:
        entry.version, entry.previous, entry.previous_path = state.version + 1, state.digest, state.path
        state = applied(state, entry)
    return state


def load_of(start: int, end: int, *, partition: int = 0) -> Entry:
    """Return a load of a range of one partition."""
    entry = following(State())
    entry.partitions[str(partition)] = covering(start, end)
    return entry


def of_kind(kind: str, **more: object) -> Entry:
    """Return an entry of a kind with some of its fields."""
    entry = following(State(), kind)
    for name, value in more.items():
        assert hasattr(entry, name), name
        setattr(entry, name, value)
    return entry
