"""Differences between the logins of Apache Kafka and of Barnabas that are known, and how far each may go.

The rule: where we are stricter nothing that Kafka refuses is let in, and where we say more it is a refusal that we say.
"""

from __future__ import annotations

from typing import Any

from compat.kit.known import Difference, KnownDifference, Predicate
from compat.kit.predicates import pair, pairs

REFUSED, NOT_SUPPORTED = 58, 33
SILENT = "no answer, open"
RIGHT = {"v": "right"}
BAD_TOKEN = b'{"status":"invalid_token"}'
"""OAUTHBEARER's refusal of a token: the client says goodbye, and gets the error."""


def _name(difference: Difference) -> str:
    return difference.path.rpartition("/")[2]


def _when(difference: Difference, *accepted: tuple[str, str]) -> bool:
    """Return whether a difference is in when it is answered, and one of these pairs of Kafka's time and ours."""
    return _name(difference) == "when" and (difference.theirs, difference.ours) in accepted


LATE, SOONER = ("at once", "late"), ("late", "at once")
"""A login that fails is answered late, so that it takes as long to try as one that succeeds; the rest at once."""
ENDS, GOES_ON = ("nothing", "at once"), ("at once", "nothing")
"""The connection is closed here, and Kafka leaves it open; and the other way round."""


def late_too(difference: Difference) -> bool:
    """Both close the connection, Kafka at once and we late."""
    theirs, ours = difference.whole
    return bool(_when(difference, LATE) and theirs["answer"] == ours["answer"] == "closed")


def _is_refusal(answer: Any, *codes: int) -> bool:
    """Return whether an answer, or the rest of one, refuses a login: by a code, or by the end of the connection."""
    if not isinstance(answer, dict):
        return answer == "nothing"
    if "ErrorCode" not in answer:
        return answer.get("answer") in ("closed", "nothing")
    return (
        answer["ErrorCode"] in (codes or (REFUSED,))
        and (answer.get("AuthBytes", b"") == b"")
        and answer.get("SessionLifetimeMs", 0) == 0
    )


def is_challenge(value: Any) -> bool:
    """Return whether a token of SCRAM asks for the proof of a password."""
    return (
        isinstance(value, dict)
        and value.keys() == {"s", "i", "nonce"}
        and value["nonce"] == "the client's and more"
    )


def _goes_on(answer: Any) -> bool:
    """Return whether an answer takes a login further: by a token, an open connection, or TLS."""
    if not isinstance(answer, dict):
        return isinstance(answer, str) and answer.startswith("TLSv")
    if "ErrorCode" in answer:
        return answer["ErrorCode"] == 0 and isinstance(answer["AuthBytes"], bytes | dict)
    return isinstance(answer["answer"], bytes | dict) or answer["answer"] in ("there", SILENT)


def stricter(difference: Difference) -> bool:
    """We refuse what Kafka goes on with; or it is said at another time."""
    theirs, ours = difference.whole
    if _name(difference) == "when":
        return _when(difference, LATE, ENDS)
    return _goes_on(theirs) and (_is_refusal(ours) or ours == "refused")


def refuses_in_words(*codes: int) -> Predicate:
    """Kafka closes the connection, or is silent; we answer that the login is refused, with one of these codes."""

    def accepts(difference: Difference) -> bool:
        theirs, ours = difference.whole
        if _name(difference) == "when":
            return _when(difference, LATE)
        if difference.path == "" and theirs in ("closed", {"answer": "closed", "when": "at once"}):
            return bool(ours == "nothing")
        is_gone = theirs == "nothing" or theirs["answer"] in ("closed", SILENT)
        is_bad_token = ours.get("ErrorCode") == 0 and ours.get("AuthBytes") == BAD_TOKEN
        return is_gone and (_is_refusal(ours, *codes) or is_bad_token)

    return accepts


def challenged(difference: Difference) -> bool:
    """Kafka refuses the name; we ask for a proof as of any user, and refuse that."""
    theirs, ours = difference.whole
    if _name(difference) == "when":
        return _when(difference, SOONER)
    if theirs == "nothing":
        return _is_refusal(ours)
    challenge = ours.get("AuthBytes", ours.get("answer"))
    return _is_refusal(theirs) and is_challenge(challenge) and ours.get("ErrorCode", 0) == 0


def lets_in(difference: Difference) -> bool:
    """The proof is right for us, and for Kafka it is not."""
    accepted = {
        "ErrorCode": ((REFUSED, 0),), "AuthBytes": ((b"", RIGHT),),
        "answer": (("closed", "there"), ("closed", SILENT), ("closed", RIGHT)),
    }  # fmt: skip
    is_text = (
        _name(difference) == "ErrorMessage"
        and difference.theirs.startswith("Authentication failed")
        and difference.ours == ""
    )
    return (
        is_text
        or _when(difference, SOONER, GOES_ON)
        or (difference.theirs, difference.ours) in accepted.get(_name(difference), ())
    )


def is_answered(difference: Difference) -> bool:
    """Kafka is silent; we answer as if the name were any other: with a challenge, or by refusing the token."""
    theirs, ours = difference.whole
    if _name(difference) == "when":
        return _when(difference, SOONER)
    if theirs == "nothing":
        return _is_refusal(ours)
    if theirs == {"answer": "there"} or theirs.get("answer") == "there":
        return bool(ours.get("answer") == "closed")
    token = ours.get("AuthBytes", ours.get("answer"))
    return theirs["answer"] == SILENT and (
        _is_refusal(ours) or (is_challenge(token) and ours.get("ErrorCode", 0) == 0)
    )


THERE_WAS = "SaslAuthenticate request received after successful authentication"


def not_served(difference: Difference) -> bool:
    """Kafka answers ILLEGAL_SASL_STATE in the form of the API; we close the connection."""
    theirs, ours = difference.whole
    if _name(difference) == "when":
        return _when(difference, SOONER)
    return bool(
        theirs["ErrorCode"] == 34
        and theirs["SubscriptionId"] == 0
        and ours == {"answer": "closed", "when": "at once"}
    )


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        "(after a token|for a token v2): Produce, acks=0: Produce",
        "/when",
        "a login that fails ends late, also by a request that is not answered; Kafka closes at once",
        accepts=pair("at once", "late"),
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: (unknown user|user of another mechanism|a user as if it were a token|token: unknown|"
        "token: not said): .*",
        ".*",
        "who does not exist gets a challenge like everybody else; Kafka says so before the password",
        accepts=challenged,
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: (a mandatory extension|first: m= first): .*",
        ".*",
        "RFC 5802: m= ends a login with who does not know it; Kafka goes on",
        accepts=stricter,
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: final: (another binding|a binding that is no base64|an empty binding): .*",
        ".*",
        "RFC 5802: the channel binding is that of the first message; Kafka does not look at it",
        accepts=stricter,
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: final: an extension: .*",
        ".*",
        "RFC 5802: extensions are part of what is signed; Kafka leaves them out, and takes the proof for wrong",
        accepts=lets_in,
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: two extensions: .*",
        ".*",
        "Kafka signs a first message of its own making, with the extensions in the order of a map",
        accepts=lets_in,
        by_chance="the order of an immutable map is another in each process of Java's",
    ),
    KnownDifference(
        (
            r"SCRAM-SHA-\d+ v2: final: (cut short by four|an empty proof): .*",
            r"SCRAM-SHA-\d+ v2: final: (a short proof|a long proof): .*",
            r"SCRAM-SHA-\d+ v2: the other hash: .*",
        ),
        ".*",
        "Kafka stumbles over the proof and closes the connection; Barnabas answers that the login has failed",
        accepts=refuses_in_words(),
    ),
    KnownDifference(
        (
            r"SCRAM-SHA-\d+ \w+: a long name: .*",
            r"OAUTHBEARER \w+: many keys: .*",
            "unsecured: many keys: .*",
        ),
        ".*",
        "Kafka's expressions overflow the stack of their thread, and nobody is answered",
        accepts=is_answered,
    ),
    KnownDifference(
        r"OAUTHBEARER \w+: (a right token|nothing) after a refusal: .*",
        ".*",
        "RFC 7628: what follows a refusal is the client's goodbye; Kafka takes another token",
        accepts=stricter,
    ),
    KnownDifference(
        (
            r"OAUTHBEARER \w+: another scheme: .*",
            "OAUTHBEARER bare: no auth: .*",
            "unsecured: (another scheme|no algorithm): .*",
        ),
        ".*",
        "Kafka stumbles and closes the connection; Barnabas answers that the login has failed",
        accepts=refuses_in_words(),
    ),
    KnownDifference(
        r"again \w+: ([A-Z0-9-]+, then [A-Z0-9-]+|a mechanism that is not there): .*again.*",
        ".*",
        "Kafka closes the connection without a word; Barnabas answers what is wrong first",
        accepts=refuses_in_words(REFUSED, NOT_SUPPORTED),
    ),
    KnownDifference(
        "TLS cipher DHE-.*",
        ".*",
        "ciphers with ephemeral Diffie-Hellman over finite fields need parameters that no setting gives; ECDHE is there",
        accepts=pairs(("TLSv1.2", "refused"), ("there", "closed")),
    ),
    KnownDifference(
        "(after a token|for a token v2): GetTelemetrySubscriptions: .*",
        ".*",
        "without telemetry.enable there is no such API here, so that nothing can be answered in its form",
        accepts=not_served,
    ),
    KnownDifference(
        "(without logins: token v.|TLS: a login where there is none): .*",
        "/ErrorMessage",
        "Kafka speaks of a login that there was not",
        accepts=pairs(
            *(
                (THERE_WAS, f"listener {name} uses {name if name != 'REQUIRED' else 'SSL'}, not SASL")
                for name in ("PLAINTEXT", "REQUIRED")
            )
        ),
    ),
    KnownDifference(
        r"(SCRAM-SHA-\d+|OAUTHBEARER) bare: .*",
        "/when",
        "a login that fails is answered late in every framing; with bare tokens Kafka closes at once but for PLAIN",
        accepts=late_too,
    ),
)
