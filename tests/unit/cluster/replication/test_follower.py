"""Truncation of a follower: to which offset."""

from barnabas.cluster.replication.follower import (
    EpochEnd,
    OutOfRange,
    Truncation,
    follower_high_watermark,
    out_of_range,
    truncation,
)

OWN = [(0, 4), (2, 7), (3, 9)]  # epoch, offset after its last record


def own(epoch: int) -> EpochEnd:
    entries = [entry for entry in OWN if entry[0] <= epoch]
    return EpochEnd(*entries[-1]) if entries else EpochEnd(-1, -1)


def cut(epoch: int, end_offset: int, high_watermark: int = 1) -> Truncation:
    return truncation(EpochEnd(epoch, end_offset), own, log_end_offset=9, high_watermark=high_watermark)


def test_to_where_the_leaders_epoch_ends() -> None:
    assert cut(3, 8) == Truncation(8, is_final=True)
    assert cut(2, 6) == Truncation(6, is_final=True)


def test_no_further_than_the_own_end_of_the_epoch() -> None:
    assert cut(2, 8) == Truncation(7, is_final=True)
    assert cut(3, 20) == Truncation(9, is_final=True)


def test_step_by_step_where_the_leaders_epoch_is_unknown_here() -> None:
    assert cut(1, 6) == Truncation(4, is_final=False)


def test_to_the_leaders_end_where_all_own_epochs_are_newer() -> None:
    fresh = truncation(EpochEnd(0, 2), lambda epoch: EpochEnd(-1, -1), log_end_offset=9, high_watermark=1)
    assert fresh == Truncation(2, is_final=True)


def test_high_watermark_decides_only_without_leader_epochs() -> None:
    assert cut(-1, -1, high_watermark=5) == Truncation(5, is_final=True)
    assert cut(-1, 6) == Truncation(6, is_final=True)  # OffsetForLeaderEpoch v0 tells no epoch


def test_out_of_range() -> None:
    assert out_of_range(log_end_offset=9, leader_start_offset=0, leader_end_offset=5) == OutOfRange(
        5, 5, None
    )
    assert out_of_range(log_end_offset=9, leader_start_offset=20, leader_end_offset=30) == OutOfRange(
        20, None, 20
    )
    assert out_of_range(log_end_offset=9, leader_start_offset=0, leader_end_offset=30) == OutOfRange(
        9, None, None
    )


def test_followers_watermark_is_the_leaders_within_its_log() -> None:
    assert follower_high_watermark(10, 7, 3) == 7
    assert follower_high_watermark(5, 7, 3) == 5
    assert follower_high_watermark(2, 7, 3) == 3
