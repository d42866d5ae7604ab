"""Delegation tokens of an active controller."""

import pytest

from barnabas.cluster.kraft.controller import tokens
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.tokens import TIMESTAMP_MAX, token_hmac
from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.generated.renew_delegation_token import RenewDelegationTokenRequest
from tests.support.active_controller import NOW_MS, RECORDS, ActiveController

LIFETIME, EXPIRY, CHECK = 1_000_000, 10_000, 5_000
SETTINGS = {
    "delegation.token.secret.key": "key",
    "delegation.token.max.lifetime.ms": str(LIFETIME),
    "delegation.token.expiry.time.ms": str(EXPIRY),
    "delegation.token.expiry.check.interval.ms": str(CHECK),
}
ALICE, BOB = "User:alice", "User:bob"
FORWARDED = {"principal": ALICE, "is_forwarded": True}


def new(level=30, config=None):
    return ActiveController(level, SETTINGS if config is None else config)


def create(bench, *renewers, lifetime=-1, owner=None, version=3, **caller):
    kind = CreateDelegationTokenRequest
    request = kind(
        renewers=[kind.CreatableRenewers(*renewer.split(":")) for renewer in renewers],
        max_lifetime_ms=lifetime,
    )
    if owner:
        request.owner_principal_type, request.owner_principal_name = owner.split(":")
    return bench.ask(tokens.CREATE_DELEGATION_TOKEN, request, version, **{**FORWARDED, **caller})


def renew(bench, mac, period=-1, **caller):
    request = RenewDelegationTokenRequest(mac, period)
    return outcome(bench.ask(tokens.RENEW_DELEGATION_TOKEN, request, **{**FORWARDED, **caller}))


def expire(bench, mac, period=-1, **caller):
    request = ExpireDelegationTokenRequest(mac, period)
    return outcome(bench.ask(tokens.EXPIRE_DELEGATION_TOKEN, request, **{**FORWARDED, **caller}))


def outcome(response):
    """Return the code, or when the token expires, in ms from the beginning."""
    if response.error_code:
        is_asked_for = response.error_code != ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert response.expiry_timestamp_ms == (0 if is_asked_for else -1)
        return ErrorCode(response.error_code).name
    return response.expiry_timestamp_ms - NOW_MS


@pytest.mark.parametrize(
    ("lifetime", "longest", "expires"),
    [
        (-1, LIFETIME, EXPIRY),
        (0, LIFETIME, EXPIRY),
        (5, 5, 5),
        (20_000, 20_000, EXPIRY),
        (2 * LIFETIME, LIFETIME, EXPIRY),
    ],
)
def test_token_lives_as_long_as_is_asked_and_allowed(lifetime, longest, expires):
    bench = new()
    response = create(bench, BOB, lifetime=lifetime)
    (token,) = bench.image.tokens.values()
    assert response.error_code == 0
    assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, (BOB,))
    assert (token.issued_ms, token.expires_ms, token.expires_max_ms) == (
        NOW_MS,
        NOW_MS + expires,
        NOW_MS + longest,
    )
    assert (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms) == (
        token.issued_ms, token.expires_ms, token.expires_max_ms,
    )  # fmt: skip
    assert (response.token_id, response.hmac) == (token.token_id, token_hmac("key", token.token_id))
    assert (response.principal_type, response.principal_name) == ("User", "alice")


@pytest.mark.parametrize(("version", "name"), [(2, ""), (3, "alice")])
def test_requester_is_named_since_v3(version, name):
    response = create(new(), version=version)
    assert (response.principal_name, response.token_requester_principal_name) == ("alice", name)


def test_times_do_not_go_beyond_the_largest_timestamp():
    bench = new(config={**SETTINGS, "delegation.token.max.lifetime.ms": str(TIMESTAMP_MAX)})
    mac = create(bench).hmac
    (token,) = bench.image.tokens.values()
    assert token.expires_max_ms == TIMESTAMP_MAX
    assert expire(bench, mac, TIMESTAMP_MAX) == TIMESTAMP_MAX - NOW_MS


def test_token_for_another_owner_needs_create_tokens():
    bench, asked = new(), []

    def may(*permission):
        asked.append(permission)
        return len(asked) < 2

    response = create(bench, owner=BOB, may=may)
    (token,) = bench.image.tokens.values()
    assert (token.owner, token.requester) == (BOB, ALICE)
    assert (response.principal_name, response.token_requester_principal_name) == ("bob", "alice")
    response = create(bench, owner=BOB, may=may)
    assert asked == [(Operation.CREATE_TOKENS, ResourceType.USER, BOB)] * 2
    assert (response.error_code, response.principal_name) == (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "bob",
    )  # fmt: skip
    assert create(bench, owner=ALICE, may=may).error_code == 0
    assert bench.records


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"config": {}}, "DELEGATION_TOKEN_AUTH_DISABLED"),
        ({"config": {}, "level": 13}, "DELEGATION_TOKEN_AUTH_DISABLED"),
        ({"level": 13}, "UNSUPPORTED_VERSION"),
        ({"renewers": ["Group:a"]}, "INVALID_PRINCIPAL_TYPE"),
        ({"caller": {"owner": ":carol"}}, "INVALID_PRINCIPAL_TYPE"),
        ({"renewers": [BOB, "User:carol", "User:dave"]}, "POLICY_VIOLATION"),
        ({"caller": {"is_token_authenticated": True}}, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"),
        ({"caller": {"is_forwarded": False}}, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"),
        (
            {"caller": {"is_forwarded": False, "security_protocol": "SSL", "principal": "User:ANONYMOUS"}},
            "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        ),
        ({"caller": {"is_forwarded": False, "security_protocol": "SSL"}}, "NONE"),
        ({"caller": {"is_forwarded": False, "security_protocol": "SASL_PLAINTEXT"}}, "NONE"),
        (
            {
                "caller": {
                    "is_forwarded": False,
                    "security_protocol": "SASL_SSL",
                    "principal": "User:ANONYMOUS",
                }
            },
            "NONE",
        ),
        ({"renewers": [BOB, "User:carol"]}, "NONE"),
        ({"level": 14}, "NONE"),
    ],
)
def test_token_is_created_only_where_it_may_be(changes, code):
    limited = {**SETTINGS, "delegation.token.max.per.owner": "2"}
    bench = new(changes.get("level", 30), changes.get("config", limited))
    response = create(bench, *changes.get("renewers", ()), **changes.get("caller", {}))
    assert ErrorCode(response.error_code).name == code
    assert len(bench.records) == (code == "NONE")
    if code != "NONE":
        assert (response.token_id, response.hmac) == ("", b"")
        is_forbidden = code.endswith(("NOT_ALLOWED", "AUTHORIZATION_FAILED"))
        expected = -1 if is_forbidden else 0
        times = {response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms}
        assert times == {expected}


def test_owner_has_so_many_tokens_that_have_not_expired():
    bench = new(config={**SETTINGS, "delegation.token.max.per.owner": "2"})
    assert [create(bench).error_code for _ in range(3)] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert create(bench, principal=BOB).error_code == 0
    bench.pass_time(EXPIRY + 1)
    assert create(bench).error_code == 0


@pytest.mark.parametrize(("period", "expires"), [(-1, EXPIRY), (0, EXPIRY), (7, 7), (LIFETIME, EXPIRY)])
def test_renewed_token_lives_from_now_on(period, expires):
    bench = new()
    mac = create(bench, BOB).hmac
    bench.pass_time(4_000)
    assert renew(bench, mac, period, principal=BOB) == 4_000 + expires
    (token,) = bench.image.tokens.values()
    assert (token.expires_ms, token.expires_max_ms, token.renewers) == (
        NOW_MS + 4_000 + expires, NOW_MS + LIFETIME, (BOB,),
    )  # fmt: skip


def test_token_cannot_be_renewed_beyond_its_end():
    bench = new()
    mac = create(bench, lifetime=12_000).hmac
    bench.pass_time(9_000)
    assert renew(bench, mac) == 12_000


@pytest.mark.parametrize(
    ("period", "expires"), [(0, 0), (7, 7), (LIFETIME, LIFETIME), (2 * LIFETIME, LIFETIME)]
)
def test_token_expires_after_the_period_that_is_asked_for(period, expires):
    bench = new()
    assert expire(bench, create(bench).hmac, period) == expires
    (token,) = bench.image.tokens.values()
    assert token.expires_ms == NOW_MS + expires


def test_negative_period_removes_even_an_expired_token():
    bench = new()
    mac = create(bench).hmac
    bench.pass_time(EXPIRY + 1)
    assert expire(bench, mac, 0) == "DELEGATION_TOKEN_EXPIRED"
    assert expire(bench, mac, -1) == EXPIRY + 1
    assert bench.image.tokens == {}
    assert expire(bench, mac, -1) == "DELEGATION_TOKEN_NOT_FOUND"


@pytest.mark.parametrize("change", [renew, expire])
def test_change_of_a_tokens_end_is_refused_in_kafkas_order(change):
    bench = new()
    mac = create(bench, BOB).hmac
    bench.commit()
    assert change(bench, b"no mac", 1) == "DELEGATION_TOKEN_NOT_FOUND"
    assert change(bench, mac, 1, principal="User:carol") == "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert change(bench, mac, 1, is_token_authenticated=True) == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
    bench.pass_time(EXPIRY)
    assert change(bench, mac, EXPIRY) == 2 * EXPIRY
    bench.pass_time(EXPIRY + 1)
    assert change(bench, mac, 1) == "DELEGATION_TOKEN_EXPIRED"
    first = "DELEGATION_TOKEN_EXPIRED" if change is renew else "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert change(bench, mac, 1, principal="User:carol") == first
    assert bench.records == []
    assert change(new(13), mac, 1) == "UNSUPPORTED_VERSION"
    assert change(new(13, {}), mac, 1) == "DELEGATION_TOKEN_AUTH_DISABLED"


def test_tokens_of_other_requests_are_found():
    bench = new()
    first, second = create(bench), create(bench)
    assert renew(bench, first.hmac, 5) == renew(bench, second.hmac, 5) == 5
    assert expire(bench, first.hmac) == 0
    third = create(bench)
    assert renew(bench, third.hmac, 5) == 5
    assert renew(bench, first.hmac) == "DELEGATION_TOKEN_NOT_FOUND"


# --- the end of tokens ----------------------------------------------------------------------------------------------


def test_expired_tokens_are_removed_at_intervals():
    bench = new()
    ids = [create(bench, lifetime=lifetime).token_id for lifetime in (1, CHECK, CHECK + 1)]
    assert bench.tick(tokens) == []
    bench.pass_time(CHECK - 1)
    assert bench.tick(tokens) == []
    bench.pass_time(1)
    assert bench.tick(tokens) == [RECORDS["RemoveDelegationToken"](ids[0])]
    bench.pass_time(CHECK - 1)
    assert bench.tick(tokens) == []
    bench.pass_time(1)
    assert bench.tick(tokens) == [RECORDS["RemoveDelegationToken"](token_id) for token_id in ids[1:]]


def test_many_expired_tokens_are_removed_in_several_turns():
    bench = new()
    kind = RECORDS["DelegationToken"]
    bench.commit(*(kind(owner=ALICE, requester=ALICE, token_id=f"{number}") for number in range(2_001)))
    assert bench.tick(tokens) == []
    bench.pass_time(CHECK)
    assert [len(bench.tick(tokens)) for _ in range(4)] == [1_000, 1_000, 1, 0]
