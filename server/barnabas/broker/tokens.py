"""Checks the tokens of OAUTHBEARER: signed ones by a JWKS (KIP-768), and unsecured ones if enabled.

The rule: a signature by a public-key algorithm is required, only the operator's keys count, and every expected claim
must be present.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from barnabas.network.jwks import Jwks, JwksError
from barnabas.security.principals import has_control_character
from barnabas.security.sasl.mechanism import Identity
from barnabas.security.sasl.oauthbearer import TokenError

if TYPE_CHECKING:
    from barnabas.environment import Threads

log = logging.getLogger(__name__)

# That a client has chosen an algorithm that has another name by now is nothing to tell the operator.
warnings.filterwarnings("ignore", message="EdDSA is deprecated")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
TOKEN_CHARS_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Expected:
    """Requirements on a token."""

    issuer: str | None = None
    audience: tuple[str, ...] = ()
    """The token must name one of these; any where there are none."""
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    skew_s: float = 30.0
    issued_in_past: bool = False
    """True if a token with a claim iat in the future is refused."""


class SignedTokens:
    """Checks JWTs by the keys of a JWKS."""

    def __init__(
        self,
        jwks: Jwks,
        expected: Expected,
        *,
        threads: Threads,
        clock_ms: Callable[[], int],
        now_s: Callable[[], float],
    ) -> None:
        """`now_s` is monotonic."""
        self._now_s = now_s
        self._jwks = jwks
        self._expected = expected
        self._threads = threads
        self._clock_ms = clock_ms
        self._lock = trio.Lock()
        self._key_set: KeySet | None = None

    async def check(self, token: str) -> Identity:
        """Return the principal of a token. Raises TokenError."""
        header = _json_part(token, 0, 3)
        if header.get("alg") not in ALGORITHMS:
            raise TokenError(f"a token is signed with {str(header.get('alg'))[:40]!r}")
        _json_part(token, 1, 3)  # each claim must occur once, which checks of signatures do not verify
        await self._refresh(header.get("kid"))
        claims = self._claims(token)
        _time(claims, "iat", is_needed=True)
        _check_scopes(claims.get(self._expected.scope_claim))
        return identity_of(claims, self._expected, self._clock_ms())

    async def _refresh(self, key_id: object) -> None:
        def is_due() -> bool:
            lacks_key = key_id is not None and not self._has(key_id)
            return self._key_set is None or self._jwks.is_due(self._now_s(), lacks_key=lacks_key)

        if not is_due():
            return
        async with self._lock:  # waiting tasks find the keys that the first has read
            if not is_due():
                return
            now_s = self._now_s()

            def read() -> KeySet:
                self._jwks.read(now_s)
                return key_set_of(self._jwks.keys or {})

            try:
                self._key_set = await self._threads.run(read)
            except JwksError as error:
                log.error("the keys that sign tokens cannot be read: %s", error)
                if self._key_set is None:
                    raise TokenError("there are no keys to check tokens with") from error

    def _has(self, key_id: object) -> bool:
        return self._key_set is not None and any(key.kid == key_id for key in self._key_set.keys)

    def _claims(self, token: str) -> Mapping[str, Any]:
        assert self._key_set is not None, "keys have been read"
        try:
            return jwt.decode(token, self._key_set, algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise TokenError(f"a token's signature cannot be checked: {type(error).__name__}") from error


def key_set_of(jwks: Mapping[str, Any]) -> KeySet:
    """Return the usable keys of a JWKS; other keys are ignored, and named in the log."""
    keys: list[Any] = []
    for number, key in enumerate(jwks.get("keys", ())):
        try:
            keys += KeySet.import_key_set({"keys": [key]}).keys
        except (JoseError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("key %d of those that sign tokens cannot be used: %s", number, type(error).__name__)
    return KeySet(keys)


class UnsecuredTokens:
    """Accepts tokens without a signature (RFC 7515, appendix A.5). For tests."""

    def __init__(self, expected: Expected, *, clock_ms: Callable[[], int]) -> None:
        self._expected = expected
        self._clock_ms = clock_ms

    async def check(self, token: str) -> Identity:
        """Return the principal that an unsigned token claims. Raises TokenError."""
        if not token.endswith("."):
            raise TokenError("a token has a signature, and unsecured ones are expected")
        if _json_part(token, 0, 3).get("alg") != "none":
            raise TokenError("an unsecured token's algorithm is not none")
        return identity_of(_json_part(token, 1, 3), self._expected, self._clock_ms())


def identity_of(claims: Mapping[str, Any], expected: Expected, now_ms: int) -> Identity:
    """Return the principal of a token's claims, and when it expires. Raises TokenError."""
    now_s = now_ms / 1000
    expires_s = _time(claims, "exp", is_needed=True)
    begins_s = _time(claims, "nbf")
    issued_s = _time(claims, "iat")
    if expires_s + expected.skew_s <= now_s:
        raise TokenError("a token has expired")
    not_before_s = max(begins_s, issued_s) if expected.issued_in_past else begins_s
    if not_before_s - expected.skew_s > now_s:
        raise TokenError("a token is not valid yet")
    if expires_s < max(begins_s, issued_s):
        raise TokenError("a token expires before it is valid")
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise TokenError("a token is of another issuer")
    if expected.audience and not set(_words(claims.get("aud"))) & set(expected.audience):
        raise TokenError("a token is for another audience")
    if not set(expected.required_scope) <= set(_words(claims.get(expected.scope_claim))):
        raise TokenError("a token lacks a scope")
    name = claims.get(expected.subject_claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenError(f"a token has no claim {expected.subject_claim}")
    if has_control_character(name):
        raise TokenError(f"a token's claim {expected.subject_claim} has a control character")
    return Identity(name.strip(), int(expires_s * 1000))


def _time(claims: Mapping[str, Any], name: str, *, is_needed: bool = False) -> float:
    """Return a time in s since 1970, -inf where it is not there."""
    value = claims.get(name)
    if value is None and not is_needed:
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**43:
        raise TokenError(f"a token's claim {name} is no time")
    return float(value)


def _check_scopes(value: object) -> None:
    """Check that scopes, if the token has any, are distinct and not empty. Raises TokenError."""
    scopes = value if isinstance(value, list) else [] if value is None else [value]
    texts = [scope.strip() for scope in scopes if isinstance(scope, str)]
    if len(texts) < len(scopes) or not all(texts) or len(set(texts)) < len(texts):
        raise TokenError("a token has a scope that is empty, or one twice")


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _each_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object. Raises TokenError for a repeated name: readers differ in which value counts."""
    by_name = dict(members)
    if len(by_name) < len(members):
        raise TokenError("a token has a member twice")
    return by_name


def _json_part(token: str, index: int, count: int) -> Mapping[str, Any]:
    """Return a decoded part of a token. Raises TokenError."""
    parts = token.split(".")
    if len(parts) != count or len(token) > TOKEN_CHARS_MAX:
        raise TokenError("a token is not of the form of a JWT")
    try:
        padded = parts[index] + "=" * (-len(parts[index]) % 4)
        content = base64.b64decode(padded, altchars=b"-_", validate=True)
        part = json.loads(content, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise TokenError("a token's part is no JSON in base64") from None
    if not isinstance(part, dict):
        raise TokenError("a token's part is no JSON object")
    return part
