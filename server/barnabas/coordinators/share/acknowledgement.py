"""Acknowledgements of acquired records by members. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


class Verdict(IntEnum):
    """Verdict on a record, with the numbers of the protocol."""

    GAP = 0
    """There is no such record, as after compaction."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Not finished: the member keeps the record for another lock duration (KIP-1222)."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Verdicts on offsets `first` to `last`: one for each, or one for all."""

    first: int
    last: int
    verdicts: Sequence[int]

    def spans(self) -> Iterator[tuple[int, int, Verdict]]:
        """Return first and last offset of each run with the same verdict."""
        if len(self.verdicts) == 1:
            yield self.first, self.last, Verdict(self.verdicts[0])
            return
        start = 0
        for position in range(1, len(self.verdicts) + 1):
            if position == len(self.verdicts) or self.verdicts[position] != self.verdicts[start]:
                yield self.first + start, self.first + position - 1, Verdict(self.verdicts[start])
                start = position


def check_acknowledgements(
    acknowledgements: Sequence[Acknowledgement], *, knows_renew: bool, is_renew: bool
) -> None:
    """Check that one partition's acknowledgements are consistent. Raises INVALID_REQUEST.

    `knows_renew` is whether the request's version has RENEW, `is_renew` whether the request has its renew flag set.
    """
    largest = Verdict.RENEW if knows_renew else Verdict.REJECT
    previous_last = -1
    for each in acknowledgements:
        why = ""
        if each.first > each.last:
            why = f"offsets {each.first} to {each.last} are none"
        elif each.first < previous_last:
            why = f"offset {each.first} comes after offset {previous_last}"
        elif not each.verdicts:
            why = f"nothing is said of offsets {each.first} to {each.last}"
        elif len(each.verdicts) > 1 and len(each.verdicts) != each.last - each.first + 1:
            why = f"{len(each.verdicts)} verdicts are given on offsets {each.first} to {each.last}"
        elif not all(0 <= verdict <= largest for verdict in each.verdicts):
            why = "there is no such acknowledgement"
        elif Verdict.RENEW in each.verdicts and not is_renew:
            why = "the request does not say that it renews"
        if why:
            raise RequestError(ErrorCode.INVALID_REQUEST, why)
        previous_last = each.last
