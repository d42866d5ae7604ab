"""Delegation tokens: how long they live, which users may renew them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.access_changes import DelegationTokenChanged
from barnabas.cluster.metadata.delegation_tokens import DelegationTokens
from barnabas.cluster.metadata.image import ClusterImage
from barnabas.errors import RequestError, StorageError
from barnabas.security.tokens import Lifetime, Token
from barnabas.wire.generated.errors import ErrorCode

NOW = 1_000_000


class Cluster:
    """Metadata, and the credentials in them."""

    def __init__(self, *tokens: Token, has_tokens: bool = True) -> None:
        self.image = ClusterImage("c").apply([DelegationTokenChanged(token) for token in tokens])
        self.has_tokens = has_tokens
        self.changes = 0
        self.is_full = False

    async def change(self, decide: Any) -> None:
        self.changes += 1
        if self.is_full:
            raise StorageError("/d", OSError(28, "full"))
        self.image = self.image.apply([change for change in decide(self.image) if change is not None])

    async def token_with(self, mac: bytes) -> Token | None:
        return self.image.tokens.get(mac.decode())

    def mac_of(self, token_id: str) -> bytes:
        return token_id.encode()


class Same:
    """Draws the same bytes each time."""

    def token_bytes(self, size: int) -> bytes:
        return b"r" * size


def tokens(cluster: Cluster, now_ms: int = NOW) -> DelegationTokens:
    return DelegationTokens(
        cluster, cluster, lifetime=Lifetime(10_000, 3_000), per_owner_max=2, check_interval_ms=500,  # type: ignore[arg-type]
        clock_ms=lambda: now_ms, entropy=Same(),  # type: ignore[arg-type]
    )  # fmt: skip


def token(
    token_id: str = "x", owner: str = "User:a", expires_ms: int = NOW + 100, longest_ms: int = NOW + 5_000
) -> Token:
    return Token(token_id, owner, "User:r", ("User:b",), NOW - 10, expires_ms, longest_ms)


@pytest.mark.parametrize(
    ("lifetime_ms", "expires", "longest"),
    [
        (0, 3_000, 10_000),
        (-1, 3_000, 10_000),
        (1, 1, 1),
        (2_000, 2_000, 2_000),
        (5_000, 3_000, 5_000),
        (20_000, 3_000, 10_000),
    ],
)
async def test_a_token_lives_as_long_as_is_asked_for_and_allowed(
    lifetime_ms: int, expires: int, longest: int
) -> None:
    cluster = Cluster()
    token = await tokens(cluster).create("User:a", "User:r", ["User:b"], lifetime_ms)
    assert (token.owner, token.requester, token.renewers, token.issued_ms) == (
        "User:a",
        "User:r",
        ("User:b",),
        NOW,
    )
    assert (token.expires_ms, token.expires_max_ms) == (NOW + expires, NOW + longest)
    assert list(cluster.image.tokens.values()) == [token]


@pytest.mark.parametrize(
    ("held", "is_refused"),
    [
        ([], False),
        ([token("1")], False),
        ([token("1"), token("2")], True),
        ([token("1"), token("2", owner="User:c")], False),
        ([token("1"), token("2", expires_ms=NOW - 1)], False),
        ([token("1"), token("2", expires_ms=NOW)], True),
    ],
)
async def test_an_owner_has_so_many_tokens_that_are_alive(held: list[Token], is_refused: bool) -> None:
    cluster = Cluster(*held)
    if is_refused:
        with pytest.raises(RequestError) as caught:
            await tokens(cluster).create("User:a", "User:a", [], 0)
        assert caught.value.code == ErrorCode.POLICY_VIOLATION
    else:
        await tokens(cluster).create("User:a", "User:a", [], 0)
    assert len(cluster.image.tokens) == len(held) + (not is_refused)


@pytest.mark.parametrize(
    ("act", "period_ms", "expires"),
    [("renew", 0, 3_000), ("renew", -1, 3_000), ("renew", 700, 700), ("renew", 9_000, 3_000), ("expire", 0, 0),
     ("expire", 700, 700), ("expire", 9_000, 5_000)],
)  # fmt: skip
async def test_token_expires_as_asked_within_its_maximum(act: str, period_ms: int, expires: int) -> None:
    cluster = Cluster(token())
    served = tokens(cluster)
    assert await getattr(served, act)(b"x", "User:b", period_ms) == NOW + expires
    assert cluster.image.tokens["x"] == replace(token(), expires_ms=NOW + expires)


async def test_a_token_that_is_expired_at_once_is_gone() -> None:
    cluster = Cluster(token(), token("y"))
    assert await tokens(cluster).expire(b"x", "User:a", -1) == NOW
    assert list(cluster.image.tokens) == ["y"]


OLD = token(expires_ms=NOW - 1)
MISMATCH, EXPIRED = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ErrorCode.DELEGATION_TOKEN_EXPIRED
NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize(
    ("kept", "mac", "principal", "renewing", "expiring"),
    [
        (token(), b"x", "User:a", 0, 0),
        (token(), b"x", "User:b", 0, 0),
        (token(), b"x", "User:r", MISMATCH, MISMATCH),
        (token(), b"y", "User:a", NOT_FOUND, NOT_FOUND),
        (OLD, b"x", "User:a", EXPIRED, EXPIRED),
        (OLD, b"x", "User:r", EXPIRED, MISMATCH),
    ],
)
async def test_a_token_is_refused_with_the_first_reason(
    kept: Token, mac: bytes, principal: str, renewing: int, expiring: int
) -> None:
    for act, code in (("renew", renewing), ("expire", expiring)):
        cluster = Cluster(kept)
        try:
            await getattr(tokens(cluster), act)(mac, principal, 50)
            refused = 0
        except RequestError as error:
            refused = error.code
        assert refused == code
        assert cluster.changes == (not code)


async def test_without_a_secret_key_there_are_no_tokens() -> None:
    served = tokens(Cluster(has_tokens=False))
    for ask in (
        served.create("User:a", "User:a", [], 0),
        served.renew(b"x", "User:a", 0),
        served.expire(b"x", "User:a", 0),
    ):
        with pytest.raises(RequestError) as caught:
            await ask
        assert caught.value.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_expired_tokens_are_removed_in_a_write_if_any(autojump_clock: Any) -> None:
    cluster = Cluster(token("1"), token("2", expires_ms=NOW - 1), token("3", longest_ms=NOW - 1))
    await tokens(cluster).remove_expired()
    await tokens(cluster).remove_expired()
    assert (list(cluster.image.tokens), cluster.changes) == (["1"], 1)
    cluster.is_full = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tokens(cluster, NOW + 101).run)
        await trio.sleep(0.4)
        assert cluster.changes == 1
        await trio.sleep(1)  # it fails twice
        cluster.is_full = False
        await trio.sleep(0.5)
        assert (cluster.changes, len(cluster.image.tokens)) == (4, 0)
        nursery.cancel_scope.cancel()
