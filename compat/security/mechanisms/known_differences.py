"""Differences between the logins of Apache Kafka and of Barnabas that are known."""

from __future__ import annotations

from compat.kit.known import KnownDifference

KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        r"(SCRAM-SHA-\d+|OAUTHBEARER|again) .*bare: .*",
        "/when",
        "a login that fails is answered late in every framing; with bare tokens Kafka closes at once but for PLAIN",
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: (unknown user|user of another mechanism|a user as if it were a token|token: unknown|"
        "token: not said): .*",
        ".*",
        "who does not exist gets a challenge like everybody else; Kafka says so before the password",
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: (a mandatory extension|first: m= first): .*",
        ".*",
        "RFC 5802: m= ends a login with who does not know it; Kafka goes on",
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: final: (another binding|a binding that is no base64|an empty binding): .*",
        ".*",
        "RFC 5802: the channel binding is that of the first message; Kafka does not look at it",
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: final: an extension: .*",
        ".*",
        "RFC 5802: extensions are part of what is signed; Kafka leaves them out, and takes the proof for wrong",
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: two extensions: .*",
        ".*",
        "RFC 5802: what is signed is the message as it was sent; Kafka writes its extensions in the order of a hash map",
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ v2: final: (cut short by four|cut short by one|without a proof|an empty proof|"
        r"a short proof|a long proof): .*|SCRAM-SHA-\d+ v2: the other hash: .*",
        ".*",
        "Kafka stumbles over the proof and closes the connection; Barnabas answers that the login has failed",
        always=False,
    ),
    KnownDifference(
        r"SCRAM-SHA-\d+ \w+: a long name: .*|OAUTHBEARER \w+: many keys: .*|unsecured: many keys: .*",
        ".*",
        "Kafka's expressions overflow the stack of their thread, and nobody is answered",
    ),
    KnownDifference(
        r"OAUTHBEARER \w+: (a right token|nothing) after a refusal: .*",
        ".*",
        "RFC 7628: what follows a refusal is the client's goodbye; Kafka takes another token",
    ),
    KnownDifference(
        r"(OAUTHBEARER \w+|unsecured): (another scheme|no auth|no algorithm): .*",
        ".*",
        "Kafka stumbles and closes the connection; Barnabas answers that the login has failed",
    ),
    KnownDifference(
        r"again \w+: ([A-Z0-9-]+, then [A-Z0-9-]+|a mechanism that is not there): .*again.*",
        ".*",
        "Kafka closes the connection without a word; Barnabas answers what is wrong first",
    ),
    KnownDifference(
        "TLS cipher DHE-.*",
        ".*",
        "ciphers with ephemeral Diffie-Hellman over finite fields need parameters that no setting gives; ECDHE is there",
    ),
    KnownDifference(
        "TLS cipher AES128-SHA: .*",
        ".*",
        "by default there are only ciphers with forward secrecy; ssl.cipher.suites can name others",
    ),
    KnownDifference(
        "(after a token|for a token v2): GetTelemetrySubscriptions: .*",
        ".*",
        "without telemetry.enable there is no such API here, so that nothing can be answered in its form",
    ),
    KnownDifference(
        "(without logins: token v.|TLS: a login where there is none): .*",
        "/ErrorMessage",
        "Kafka speaks of a login that there was not",
    ),
)
