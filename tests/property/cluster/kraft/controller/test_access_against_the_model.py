"""Random requests to an active controller about settings, quotas, credentials, ACLs, tokens and ELR, against a few dicts.

After every step the answer, the image and the number of records are what the model says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from barnabas.cluster.kraft.controller import access, features, quotas, scram, settings, tokens
from barnabas.cluster.kraft.controller.settings import APPEND, DELETE, SET, SUBTRACT
from barnabas.cluster.kraft.image import BROKER, GROUP, TOPIC
from barnabas.cluster.kraft.translation import acl_of
from barnabas.cluster.kraft.values import Acl
from barnabas.cluster.metadata import scram_alterations
from barnabas.config.features import SAFE_DOWNGRADE, UPGRADE
from barnabas.security import tokens as lifetimes
from barnabas.security.tokens import Token
from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest
from barnabas.wire.generated.alter_configs import AlterConfigsRequest
from barnabas.wire.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest as Scram
from barnabas.wire.generated.create_acls import CreateAclsRequest
from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.generated.delete_acls import DeleteAclsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.wire.generated.update_features import UpdateFeaturesRequest
from tests.support.active_controller import AUTHORIZER, RECORDS, ActiveController
from tests.support.effort import examples
from tests.support.slips import unnoticed

LIFETIME, EXPIRY, CHECK = 10_000, 3_000, 2_000
CONFIG = {
    **AUTHORIZER,
    "delegation.token.secret.key": "key",
    "delegation.token.max.lifetime.ms": str(LIFETIME),
    "delegation.token.expiry.time.ms": str(EXPIRY),
    "delegation.token.expiry.check.interval.ms": str(CHECK),
}
MIN_IN_SYNC, REPLICAS = "min.insync.replicas", "leader.replication.throttled.replicas"
RESOURCES = [
    (TOPIC, "orders"),
    (TOPIC, "orders"),
    (TOPIC, "absent"),
    (BROKER, ""),
    (BROKER, "1"),
    (BROKER, "2"),
    (GROUP, ""),
]
BAD = {
    (TOPIC, "absent"): "UNKNOWN_TOPIC_OR_PARTITION",
    (BROKER, "2"): "BROKER_ID_NOT_REGISTERED",
    (GROUP, ""): "INVALID_REQUEST",
}
OPERATIONS = st.sampled_from([SET, SET, DELETE, APPEND, SUBTRACT])
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        name: st.tuples(OPERATIONS, st.sampled_from(values))
        for name, values in {
            "flush.ms": ["1", "2", "x", None],
            MIN_IN_SYNC: ["1", "2", None],
            REPLICAS: ["1:1", "2:2", "2:2,1:1", "3:3,2:2,1:1", "1", None],
        }.items()
    },
)
USERS = st.sampled_from(["alice", "bob"])
ENTITIES = st.sampled_from(
    [
        {"user": "a"},
        {"user": "a"},
        {"user": None},
        {"client-id": "c", "user": "a"},
        {"ip": "10.0.0.1"},
        {"host": "h"},
    ]
)
LIMITS = ["producer_byte_rate", "request_percentage", "connection_creation_rate"]
ACLS = st.builds(
    Acl, st.just(TOPIC), st.sampled_from(["t", "u"]), st.sampled_from([3, 4]),
    st.sampled_from(["User:a", "User:b", "none"]), st.just("*"), st.sampled_from([3, 1]), st.sampled_from([2, 3]),
)  # fmt: skip


class Requests(RuleBasedStateMachine):
    """A leader and what its image is to have."""

    def __init__(self) -> None:
        super().__init__()
        kind = RECORDS["RegisterBroker"]
        broker = kind(
            broker_id=1, incarnation_id=bytes(16), features=[kind.BrokerFeature(features.ELR, 0, 1)]
        )
        self.bench = ActiveController(30, CONFIG, RECORDS["Topic"]("orders", bytes(range(16))), broker)
        self.settings: dict[tuple[int, str], dict[str, str]] = {}
        self.quotas: dict[tuple[Any, ...], dict[str, float]] = {}
        self.users: dict[tuple[str, int], int] = {}
        self.acls: set[Acl] = set()
        self.tokens: dict[str, Token] = {}
        self.macs: list[tuple[bytes, str]] = [(b"none", "none")]
        self.has_elr = False
        self.now = self.bench.state.now_ms
        self.check_at: int | None = None

    def same(self) -> None:
        image = self.bench.image
        assert {key: dict(own) for key, own in image.settings.items()} == {
            key: own for key, own in self.settings.items() if own
        }
        assert {key: dict(own) for key, own in image.quotas.items()} == {
            key: own for key, own in self.quotas.items() if own
        }
        assert {key: credential.iterations for key, credential in image.users.items()} == self.users
        assert sorted(image.acls.values()) == sorted(self.acls)
        assert image.tokens == self.tokens
        assert features.has_elr(image) == self.has_elr

    # --- settings and ELR ---

    @rule(
        resource=st.sampled_from(RESOURCES),
        entries=ENTRIES,
        is_older=st.booleans(),
        validate_only=st.sampled_from([False, False, True]),
    )
    def alter(
        self, resource: tuple[int, str], entries: dict[str, Any], is_older: bool, validate_only: bool
    ) -> None:
        kind: Any = AlterConfigsRequest if is_older else IncrementalAlterConfigsRequest
        configs = [
            kind.AlterableConfig(name, value) if is_older else kind.AlterableConfig(name, *operation, value)
            for name, (*operation, value) in entries.items()
        ]
        request = kind([kind.AlterConfigsResource(*resource, configs)], validate_only)
        key = settings.ALTER_CONFIGS if is_older else settings.INCREMENTAL_ALTER_CONFIGS
        (answer,) = self.bench.ask(key, request).responses
        expected, after, count = self.expected(resource, entries, is_older)
        assert ErrorCode(answer.error_code).name == expected
        if expected == "NONE" and not validate_only:
            self.settings[resource] = after
            assert len(self.bench.records) == count
        else:
            assert self.bench.records == []
        self.same()

    @rule(
        operation=st.sampled_from([SET, APPEND, SUBTRACT]),
        value=st.sampled_from(["1:1", "2:2", "3:3,2:2,1:1"]),
    )
    def edit_list(self, operation: int, value: str) -> None:
        self.alter((TOPIC, "orders"), {REPLICAS: (operation, value)}, False, False)

    def expected(
        self, resource: tuple[int, str], entries: dict[str, Any], is_older: bool
    ) -> tuple[str, dict[str, str], int]:
        kind, own = resource[0], self.settings.get(resource, {})
        changes: dict[str, str | None] = {}
        for name, (operation, value) in entries.items():
            if is_older or operation == SET:
                changes[name] = value
            elif operation == DELETE:
                changes[name] = None
            elif value is None:
                return "INVALID_REQUEST", {}, 0
            elif name != REPLICAS or kind != TOPIC:
                return "INVALID_CONFIG", {}, 0
            else:
                items = [item for item in own.get(name, "").split(",") if item]
                listed_items = value.split(",")
                new = [*items, *(item for item in listed_items if item not in items)]
                changes[name] = ",".join(
                    new if operation == APPEND else [item for item in items if item not in listed_items]
                )
        if is_older:
            changes.update({name: None for name in own if name not in changes})
        is_kept = kind == BROKER and self.has_elr and MIN_IN_SYNC in changes
        if is_kept and (resource[1] or changes[MIN_IN_SYNC] is None):
            return "INVALID_CONFIG", {}, 0
        after = {name: value for name, value in {**own, **changes}.items() if value is not None}
        if kind == TOPIC:
            good = {
                "flush.ms": lambda text: text.isdigit(),
                MIN_IN_SYNC: str.isdigit,
                REPLICAS: lambda text: not text.isdigit(),
            }
            if not all(good[name](value) for name, value in after.items()):
                return "INVALID_CONFIG", {}, 0
        if resource in BAD:
            return BAD[resource], {}, 0
        written = [name for name, value in changes.items() if kind == BROKER or own.get(name) != value]
        return "NONE", after, len(written) + (self.has_elr and MIN_IN_SYNC in written)

    @rule()
    def switch_elr(self) -> None:
        level, kind = (0, SAFE_DOWNGRADE) if self.has_elr else (1, UPGRADE)
        update = UpdateFeaturesRequest.FeatureUpdateKey(features.ELR, level, upgrade_type=kind)
        assert (
            self.bench.ask(
                features.UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[update])
            ).error_code
            == 0
        )
        self.has_elr = not self.has_elr
        if self.has_elr:
            self.settings.setdefault((BROKER, ""), {}).setdefault(MIN_IN_SYNC, "1")
            self.settings.get((BROKER, "1"), {}).pop(MIN_IN_SYNC, None)
        self.same()

    # --- quotas, credentials, ACLs ---

    @rule(
        entity=ENTITIES,
        operations=st.lists(
            st.tuples(st.sampled_from(LIMITS), st.sampled_from([None, 1.0, 1.0, 1.0, 2.5, -1.0])), max_size=3
        ),
    )
    def limit(self, entity: dict[str, str | None], operations: list[tuple[str, float | None]]) -> None:
        kind = AlterClientQuotasRequest
        parts = [kind.EntityData(*part) for part in entity.items()]
        listed = [kind.OpData(name, value or 0.0, value is None) for name, value in operations]
        (answer,) = self.bench.ask(quotas.ALTER_CLIENT_QUOTAS, kind([kind.EntryData(parts, listed)])).entries
        names = LIMITS[2:] if "ip" in entity else LIMITS[:2]
        is_good = "host" not in entity and len(dict(operations)) == len(operations) and all(
            value is None or (name in names and value > 0 and (value == 1.0 or name == LIMITS[1]))
            for name, value in operations
        )  # fmt: skip
        assert ErrorCode(answer.error_code).name == ("NONE" if is_good else "INVALID_REQUEST")
        before = self.quotas.setdefault(tuple(sorted(entity.items())), {})
        assert len(self.bench.records) == is_good * sum(
            before.get(name) != value for name, value in operations
        )
        for name, value in operations if is_good else ():
            if value is None:
                before.pop(name, None)
            else:
                before[name] = value
        self.same()

    @rule(
        deleted=st.lists(st.tuples(USERS, st.sampled_from([1, 2, 3])), max_size=2),
        upserted=st.lists(
            st.tuples(USERS, st.sampled_from([1, 2]), st.sampled_from([4095, 4096, 16384, 16385])), max_size=2
        ),
    )
    def salt(self, deleted: list[tuple[str, int]], upserted: list[tuple[str, int, int]]) -> None:
        request = Scram(
            [Scram.ScramCredentialDeletion(*deletion) for deletion in deleted],
            [Scram.ScramCredentialUpsertion(*upsertion, b"salt", b"salted") for upsertion in upserted],
        )
        results = self.bench.ask(scram.ALTER_USER_SCRAM_CREDENTIALS, request).results
        expected: dict[str, str] = {}
        users = dict(self.users)
        for name, mechanism in deleted:
            code = "NONE" if (name, mechanism) in self.users else "RESOURCE_NOT_FOUND"
            self.note(expected, name, "UNSUPPORTED_SASL_MECHANISM" if mechanism == 3 else code)
        for name, _, iterations in upserted:
            self.note(expected, name, "NONE" if 4096 <= iterations <= 16384 else "UNACCEPTABLE_CREDENTIAL")
        assert {result.user: ErrorCode(result.error_code).name for result in results} == expected
        for key in deleted:
            if expected[key[0]] == "NONE":
                del users[key]
        users.update({(name, number): count for name, number, count in upserted if expected[name] == "NONE"})
        self.users = users
        self.same()

    @staticmethod
    def note(expected: dict[str, str], name: str, code: str) -> None:
        if name not in expected:
            expected[name] = code
        elif expected[name] == "NONE":
            expected[name] = "DUPLICATE_RESOURCE"

    @rule(acls=st.lists(ACLS, max_size=3))
    def allow(self, acls: list[Acl]) -> None:
        creations = [CreateAclsRequest.AclCreation(*acl[:2], acl.pattern_type, *acl[3:]) for acl in acls]
        results = self.bench.ask(access.CREATE_ACLS, CreateAclsRequest(creations)).results
        good = [":" in acl.principal and acl.operation != 1 for acl in acls]
        assert [result.error_code == 0 for result in results] == good
        new = {acl for acl, is_good in zip(acls, good, strict=True) if is_good} - self.acls
        assert len(self.bench.records) == len(new)
        self.acls |= new
        self.same()

    @rule(
        filters=st.lists(
            st.tuples(st.sampled_from(["t", "u", None]), st.sampled_from([1, 2, 3, 9])), max_size=2
        )
    )
    def forbid(self, filters: list[tuple[str | None, int]]) -> None:
        asked = [
            DeleteAclsRequest.DeleteAclsFilter(1, name, 1, None, None, 1, number) for name, number in filters
        ]
        results = self.bench.ask(access.DELETE_ACLS, DeleteAclsRequest(asked)).filter_results
        removed: set[Acl] = set()
        for (name, number), result in zip(filters, results, strict=True):
            matching = [
                acl
                for acl in self.acls
                if name in (None, acl.resource_name) and number in (1, acl.permission)
            ]
            assert (result.error_code == 0) == (number != 9)
            assert len(result.matching_acls) == len(matching)
            removed.update(matching)
        self.acls -= removed
        assert len(self.bench.records) == len(removed)
        self.same()

    # --- tokens ---

    @rule(owner=USERS, renewer=USERS, lifetime=st.sampled_from([-1, 500, 5_000, 2 * LIFETIME]))
    def create(self, owner: str, renewer: str, lifetime: int) -> None:
        request = CreateDelegationTokenRequest(
            renewers=[CreateDelegationTokenRequest.CreatableRenewers("User", renewer)],
            max_lifetime_ms=lifetime,
        )
        answer = self.bench.ask(
            tokens.CREATE_DELEGATION_TOKEN, request, principal=f"User:{owner}", is_forwarded=True
        )
        end = self.now + (min(lifetime, LIFETIME) if lifetime > 0 else LIFETIME)
        name = f"User:{owner}"
        token = Token(
            answer.token_id, name, name, (f"User:{renewer}",), self.now, min(end, self.now + EXPIRY), end
        )
        self.tokens[answer.token_id] = token
        self.macs.append((answer.hmac, answer.token_id))
        self.same()

    @rule(
        data=st.data(), user=USERS, period=st.sampled_from([-1, 0, 100, 2 * LIFETIME]), renews=st.booleans()
    )
    def change_end(self, data: st.DataObject, user: str, period: int, renews: bool) -> None:
        mac, token_id = data.draw(st.sampled_from(self.macs))
        key, kind = (
            (tokens.RENEW_DELEGATION_TOKEN, RenewDelegationTokenRequest)
            if renews
            else (tokens.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest)
        )
        answer = self.bench.ask(key, kind(mac, period), principal=f"User:{user}", is_forwarded=True)
        token = self.tokens.get(token_id)
        if token is None:
            problems = ["NOT_FOUND"]
        else:
            expired = ["EXPIRED"] if min(token.expires_ms, token.expires_max_ms) < self.now else []
            foreign = ["OWNER_MISMATCH"] if f"User:{user}" not in (token.owner, *token.renewers) else []
            problems = [*expired, *foreign] if renews else [*foreign, *(expired if period >= 0 else [])]
        if problems:
            assert ErrorCode(answer.error_code).name == f"DELEGATION_TOKEN_{problems[0]}"
        elif token is not None and period < 0 and not renews:
            del self.tokens[token_id]
            assert answer.expiry_timestamp_ms == self.now
        elif token is not None:
            life = period if not renews else min(period, EXPIRY) if period > 0 else EXPIRY
            end = min(token.expires_max_ms, self.now + life)
            self.tokens[token_id] = replace(token, expires_ms=end)
            assert (answer.error_code, answer.expiry_timestamp_ms) == (0, end)
        self.same()

    @rule(ms=st.sampled_from([1, 400, CHECK, EXPIRY]))
    def pass_time(self, ms: int) -> None:
        self.bench.pass_time(ms)
        self.now += ms

    @precondition(lambda self: self.tokens)
    @rule()
    def tick(self) -> None:
        self.bench.tick(tokens)
        if self.check_at is None:
            self.check_at = self.now + CHECK
        elif self.now >= self.check_at:
            self.check_at = self.now + CHECK
            self.tokens = {
                token_id: token
                for token_id, token in self.tokens.items()
                if min(token.expires_ms, token.expires_max_ms) >= self.now
            }
        self.same()


Requests.TestCase.settings = hypothesis_settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------


_alter_setting, _quota = vars(settings)["_alter"], vars(quotas)["_alter"]


def _forgets_implicit_deletions(state, resource, caller, *, replaces_all):
    records = _alter_setting(state, resource, caller, replaces_all=replaces_all)
    named = {entry.name for entry in resource.configs}
    return [record for record in records if record.name in named]


def _keeps_brokers_values(state, resource, caller, *, replaces_all):
    own = state.image.settings.get((resource.resource_type, resource.resource_name), {})
    records = _alter_setting(state, resource, caller, replaces_all=replaces_all)
    return [record for record in records if own.get(record.name) != record.value]


_changed = vars(settings)["_changed"]


def _appends_twice(resource_type, own, entry):
    if entry.config_operation == APPEND and own.get(entry.name):
        return f"{own[entry.name]},{entry.value}"
    return _changed(resource_type, own, entry)


def _subtracts_all(resource_type, own, entry):
    changed = _changed(resource_type, own, entry)
    return "" if entry.config_operation == SUBTRACT else changed


def _values_are_not_checked(state, kind, name, own):
    vars(settings)["_check_name"](kind, name)
    vars(settings)["_check_presence"](state, kind, name)


def _quotas_are_not_compared(image, parts, operations, *, finite_only):
    return _quota(image._replace(quotas={}), parts, operations, finite_only=finite_only)


_problem_of = scram_alterations.problem_of


def _no_iterations_are_too_many(alteration, has):
    problem = _problem_of(alteration, has)
    return None if problem and problem[1] == "Too many iterations" else problem


def _what_is_not_there_is_deleted(alteration, has):
    return _problem_of(alteration, lambda *_: True)


_token = vars(tokens)["_token"]


def _expired_from_now(token, now_ms):
    if token.expires_ms <= now_ms:
        raise tokens.RequestError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _only_the_owner_is_allowed(token, principal):
    if principal != token.owner:
        raise tokens.RequestError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _macs_are_not_forgotten(state, mac, caller):
    remembered = state.parts.setdefault("remembered", {})
    if mac in remembered:
        return remembered[mac]
    return remembered.setdefault(mac, _token(state, mac, caller))


def _of_another_host(acl):
    return acl_of(acl)._replace(host="10.0.0.9")


SLIPS = {
    "what an older request leaves out stays": (settings, "_alter", _forgets_implicit_deletions),
    "the same value of a broker is no record": (settings, "_alter", _keeps_brokers_values),
    "an item is appended twice": (settings, "_changed", _appends_twice),
    "any subtraction empties a list": (settings, "_changed", _subtracts_all),
    "ELRs are not cleared": (settings, "_cleared_elr", lambda state, records: []),
    "ELRs are cleared without the feature": (settings, "has_elr", lambda image: True),
    "min.insync.replicas of a broker may be set": (settings, "_check_broker_changes", lambda *_: None),
    "any resource is there": (settings, "_check_presence", lambda *_: None),
    "values of topics are not checked": (settings, "_check_resource", _values_are_not_checked),
    "ELR does not take away a broker's setting": (features, "_elr_records", lambda state: ()),
    "quotas that are there are written again": (quotas, "_alter", _quotas_are_not_compared),
    "quotas are not checked": (quotas, "altered", lambda *_, **__: {}),
    "any number of iterations will do": (scram, "problem_of", _no_iterations_are_too_many),
    "a credential that is not there is deleted": (scram, "problem_of", _what_is_not_there_is_deleted),
    "a user may be altered twice": (scram, "TWICE", None),
    "ACLs have another host": (access, "acl_of", _of_another_host),
    "filters of any numbers match": (access, "filter_to_delete", access.filter_of),
    "a token expires at its end": (Token, "_check_alive", _expired_from_now),
    "an expired token is renewed": (Token, "_check_alive", lambda *_: None),
    "only owners renew": (Token, "_check_allowed", _only_the_owner_is_allowed),
    "anybody renews": (Token, "_check_allowed", lambda *_: None),
    "a removed token is found": (tokens, "_token", _macs_are_not_forgotten),
    "only one expired token is removed": (tokens, "REMOVED_AT_ONCE_MAX", 1),
    "times are those of another clock": (lifetimes, "later", lambda now_ms, duration_ms: duration_ms),
}  # fmt: skip


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []
