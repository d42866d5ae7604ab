"""Lags of groups: how far their committed offsets are behind the log ends, and the members that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client import ClientError
from barnabas.client import admin as administration
from barnabas.client.administration.words import SHARE


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A partition of a group; values are None if the group has committed no offset, or the broker does not report them."""

    group: str
    topic: str
    partition: int
    committed: int | None
    latest: int | None
    lag: int | None
    member_id: str
    client_id: str
    host: str
    error: ClientError | None = None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group with its members and the lags of its partitions; both are empty if it cannot be described."""

    listed: administration.ListedGroup
    info: administration.GroupInfo | ClientError
    partitions: list[PartitionLag]

    @property
    def total(self) -> int | None:
        """The sum of the known lags."""
        lags = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(lags) if lags else None


async def lags_of(
    admin: administration.Admin, groups: Mapping[str, administration.ListedGroup], topic: str | None = None
) -> dict[str, GroupLag]:
    """Describe groups and measure their lags, in one topic alone if that is given.

    Of a share group it counts from its first offset that is not done.
    """

    def is_wanted(place: tuple[str, int]) -> bool:
        return topic is None or place[0] == topic

    infos = await admin.describe_groups({name: group.kind for name, group in groups.items()})
    shares = [name for name, group in groups.items() if group.kind == SHARE]
    committed = await admin.committed(name for name in groups if name not in shares)
    committed |= await admin.share_offsets(shares)
    places = {place for name in groups for place in {*_offsets(committed[name]), *_readers(infos[name])}}
    latest = await admin.offsets(dict.fromkeys(filter(is_wanted, places), administration.LATEST))
    lags = {}
    for name, listed in groups.items():
        offsets, readers, info = committed[name], _readers(infos[name]), infos[name]
        if isinstance(offsets, ClientError) and not isinstance(info, ClientError):
            info = offsets
        rows = []
        for place in sorted(filter(is_wanted, {*_offsets(offsets), *readers})):
            at = None if isinstance(offsets, ClientError) else offsets.get(place)
            end = latest[place]
            error = next((result for result in (at, end) if isinstance(result, ClientError)), None)
            start = None if at is None or isinstance(at, ClientError) else at.offset
            last = None if isinstance(end, ClientError) else end.offset
            lag = None if start is None or last is None else max(last - start, 0)
            if at is not None and not isinstance(at, ClientError) and at.lag >= 0:
                lag = at.lag
            reader = readers.get(place, ("", "", ""))
            rows.append(PartitionLag(name, *place, start, last, lag, *reader, error))
        lags[name] = GroupLag(listed, info, rows)
    return lags


def _offsets(offsets: object) -> list[tuple[str, int]]:
    return list(offsets) if isinstance(offsets, dict) else []


def _readers(info: administration.GroupInfo | ClientError) -> dict[tuple[str, int], tuple[str, str, str]]:
    """Return member, client and host by partition; one of several members in a share group."""
    if isinstance(info, ClientError):
        return {}
    return {
        partition: (member.member_id, member.client_id, member.host)
        for member in info.members
        for partition in member.assignment
    }
