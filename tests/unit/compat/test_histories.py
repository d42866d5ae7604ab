"""Random histories on two brokers: what is drawn, which difference is shown, and which is known."""

from types import SimpleNamespace

import pytest

from compat.kit import histories
from compat.kit.histories import HistoryRun, compared, run_history, settled
from compat.kit.known import KnownDifference
from compat.log import histories as log_histories
from compat.share import histories as share_histories

SIDES = [SimpleNamespace(name="Kafka"), SimpleNamespace(name="Barnabas")]
KNOWN = (
    KnownDifference(
        "kind, seed 7: read", "/1/0", "a reason", accepts=lambda difference: difference.ours == 5
    ),
)


def drawn(run):
    for number, random in run.steps(3, 9):
        if run.side.name == "Kafka" and number == 1:
            random.random()  # one side draws more in a step
        run.note("step", number, 0 if number == 1 else random.random())


def test_what_a_step_draws_does_not_depend_on_the_steps_before():
    runs = run_history(drawn, SIDES, "kind", 7, 0)
    assert runs[0].notes == runs[1].notes
    assert 3 <= len(runs[0].notes) <= 9
    again, another = (run_history(drawn, SIDES, "kind", seed, 1)[0].notes for seed in (7, 8))
    assert again == runs[0].notes != another


def with_notes(*of_sides):
    return [
        HistoryRun(side, "name", "kind 7", list(notes)) for side, notes in zip(SIDES, of_sides, strict=True)
    ]


@pytest.mark.parametrize(
    ("theirs", "ours", "covered", "unknown"),
    [
        ([("read", [1])], [("read", [1])], 0, None),
        ([("read", [1])], [("read", [5])], 1, None),
        ([("read", [1])], [("read", [6])], 0, "kind, seed 7: read: /1/0: Kafka 1, Barnabas 6"),
        (
            [("read", [1]), ("end", [2])],
            [("read", [5]), ("end", [3])],
            1,
            "kind, seed 7: end: /1/0: Kafka 2, Barnabas 3",
        ),
        ([("read", [1])], [], 0, "kind, seed 7: read: /0: Kafka 'read', Barnabas 'the end'"),
        ([("read", [1, 2])], [("read", [6, 7])], 0, "kind, seed 7: read: /1/0: Kafka 1, Barnabas 6"),
    ],
)
def test_the_first_unknown_difference_is_told_after_the_known(theirs, ours, covered, unknown):
    expected, first = compared("kind", 7, with_notes(theirs, ours), KNOWN)
    assert len(expected) == covered
    assert (None if first is None else str(first)) == unknown


def test_interrupted_history_differs_from_a_complete_one():
    def breaks(run):
        run.note("step", 1)
        if run.side.name == "Barnabas":
            raise KeyError("Records")

    _, first = compared("kind", 7, run_history(breaks, SIDES, "kind", 7, 0), ())
    assert "the history breaks off" in str(first.whole[1])


def test_what_is_still_to_come_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(histories, "POLL_S", 0)
    codes = [3, 51, 14, 0, 9]
    assert settled(lambda: codes.pop(0), int) == 0
    assert codes == [9]


def look_up(theirs, ours):
    """A lookup by time as both sides answer it: the time, the code, the offset and its time."""
    notes = [("look up, isolation 0", [5, 0, *answer]) for answer in (theirs, ours)]
    return compared("segments", 1, with_notes([notes[0]], [notes[1]]), log_histories.KNOWN)


def test_only_a_time_that_kafka_does_not_find_is_known():
    assert look_up((-1, -1), (14, 2_001))[1] is None
    for theirs, ours in (((14, 2_001), (-1, -1)), ((14, 2_001), (15, 2_001)), ((-1, -1), (-2, -1))):
        assert look_up(theirs, ours)[1] is not None


def test_only_two_ways_to_refuse_acknowledgements_are_known():
    for theirs, ours, is_known in ((42, 121, True), (121, 42, True), (42, 0, False), (0, 121, False)):
        notes = [[("acknowledge", [["what"], 0, code])] for code in (theirs, ours)]
        _, unknown = compared("read_committed", 1, with_notes(*notes), share_histories.KNOWN)
        assert (unknown is None) is is_known
