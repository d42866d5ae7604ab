"""Random histories of leaders, as the epoch of each offset: which records of remote segments are those of a log."""

from types import SimpleNamespace

import pytest

from barnabas.cluster.tiering import lineage
from barnabas.log.epochs import LeaderEpochs
from barnabas.tiered.lineage import PartitionSegments
from barnabas.tiered.segment import SegmentState
from tests.support.effort import drawing, examples
from tests.support.remote_segments import remote_segment, update

FINISHED = SegmentState.COPY_FINISHED
DELETED = (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED)


def epochs_of(history: list[int], start: int, end: int) -> list[tuple[int, int]]:
    return [(history[at], at) for at in range(start, end) if at == start or history[at] != history[at - 1]]


def same_in(history: list[int], former: list[int], start: int, end: int) -> list[int]:
    return [at for at in range(start, min(end, len(history))) if former[at] == history[at]]


def leaders_of(random) -> list[list[int]]:
    """Each leader's history begins with that of an earlier leader, often without the last records (unclean election)."""
    histories, epoch = [[0] * random.randint(1, 9)], 0
    for _ in range(random.randint(1, 5)):
        epoch += random.choice((1, 1, 2))
        former = random.choice(histories[-2:])
        common = former[: max(0, len(former) - random.choice((0, 0, 1, 3, 12)))]
        histories.append([*common, *[epoch] * random.randint(1, 9)])
    return histories


@pytest.mark.parametrize("entries", [[(1, 0), (3, 10)], [(1, 0), (3, 20)], [(1, 0), (2, 10), (4, 20)]])
def test_use_of_a_segment_ends_where_epochs_differ(entries) -> None:
    segment = remote_segment(0, 99, ((1, 0), (2, 10), (3, 20)))
    end = 20 if (2, 10) in entries else 10
    assert lineage.end_of_use(segment, 5, LeaderEpochs(entries), 200) == end


def test_deleted_records_count_as_stored_before_the_log_start() -> None:
    remote, segment = PartitionSegments(), remote_segment(10, 19)
    for record in (segment, *(update(segment, state) for state in (FINISHED, *DELETED))):
        remote.apply(record)
    log = SimpleNamespace(epochs=LeaderEpochs([(0, 15)]), log_start_offset=15, log_end_offset=30)
    assert lineage.highest_offset(remote, log) == 14
    assert not lineage.is_in_lineage(segment, [], 30), "a log without epochs has no remote segments"


@pytest.mark.parametrize("run", range(examples(40)))
def test_records_of_segments_are_those_of_the_log_or_not(run) -> None:
    random = drawing(run)
    histories, copies = leaders_of(random), []
    for history in histories:  # a leader continues at or before the end of what is stored of its own history
        stored = [at for start, end, former in copies for at in same_in(history, former, start, end)]
        position = max(stored, default=-1) + 1
        position = random.choice((position, position, random.randint(0, position)))
        while position < len(history) and random.random() < 0.8:
            end = random.randint(position + 1, len(history))
            copies.append((position, end, history))
            position = end
    history = random.choice(histories)
    log_end = random.choice((len(history), len(history), random.randint(0, len(history))))
    history, log_start = history[:log_end], random.randint(0, max(log_end - 1, 0))
    oldest = history[log_start] if history else 99
    epochs = LeaderEpochs(epochs_of(history, log_start, log_end))
    log = SimpleNamespace(epochs=epochs, log_start_offset=log_start, log_end_offset=log_end)
    remote, copied, highest = PartitionSegments(), [], -1
    for number, (start, end, former) in enumerate(copies):
        of_segment = epochs_of(former, start, end)
        assert lineage.entries_between(epochs_of(former, 0, len(former)), start, end) == of_segment
        segment = remote.apply(remote_segment(start, end - 1, tuple(of_segment), number=number))
        if number == len(copies) - 1 and random.random() < 0.3:
            continue  # not finished
        segment = remote.apply(update(segment, FINISHED))
        is_expired = end <= log_start and random.random() < 0.5
        same = same_in(history, former, start, end)
        highest = max([highest, *(at for at in same if history[at] >= oldest)])
        if is_expired:
            for state in random.choice((DELETED, DELETED[:1])):
                remote.apply(update(segment, state))
            continue
        copied.append(segment)
        assert lineage.is_in_lineage(segment, epochs.entries, log_end) == (
            same == [*range(start, end)] and end <= log_end and former[end - 1] >= oldest
        )
        for offset in range(max(start, log_start), end):
            other = next((at for at in range(offset, end) if at not in same), end)
            assert lineage.end_of_use(segment, offset, epochs, log_end) == other, (segment, offset)
    assert lineage.highest_offset(remote, log) == highest
    shared = [copy for copy in copied if dict(copy.leader_epochs).keys() & dict(epochs.entries).keys()]
    assert lineage.first_offset(remote, epochs) == min((copy.start_offset for copy in shared), default=None)
    for offset in range(log_start, log_end):
        readers = {id(lineage.segment_at(remote, epochs, at)) for at in range(offset, log_end + 9)}
        for copy in copied:
            assert lineage.is_read_from(copy, remote, epochs, offset) == (id(copy) in readers), (copy, offset)
