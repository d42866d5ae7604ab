"""Kafka's own tools for security against Apache Kafka and Barnabas: python -m compat.security.tools [--version 4.x].

kafka-acls, kafka-configs for users, kafka-delegation-tokens: the same commands to both, and the same lines from both, which
say what they must; the exit code is 1 otherwise.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from compat.kafka import KafkaError
from compat.kafka.releases import release
from compat.kafka.tools import tool_command
from compat.kit.sides import PASSWORD, Side, StartError
from compat.security.sides import ADMIN, MODULE, both

TIMEOUT_S = 60
SETTLE_S = 4.0
"""Time that brokers of Kafka may take to see a change; a command that only reads is repeated as long if lines differ."""
ALICE, BOB = "User:alice", "User:bob"
SETTINGS = {"delegation.token.secret.key": "a secret of all brokers"}
LISTS = re.compile(r"[^,\s\[\]]+(?:, [^,\s\[\]]+)+")
"""Items with commas between them: those of Java's hash maps and sets are in another order in each process."""
HMAC = re.compile(r"[A-Za-z0-9+/]{86}==")
RANDOM = (
    (re.compile(r"\b[A-Za-z0-9_-]{22}(?=\s)"), "TOKEN"),
    (HMAC, "HMAC"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (
        re.compile(r"(\w+AuthorizationException|InvalidRequestException): .*"),
        r"\1",
    ),  # the words are each broker's own
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d"), "TIME"),
    (re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \w+ \d{4}|\b1[789]\d{11}\b"), "TIME"),
)


@dataclass(frozen=True)
class Command:
    """One call of a tool by a user; `says` is in what both print, and {hmac} is that of the token made last."""

    label: str
    tool: str
    words: str
    says: str = ""
    user: str = ADMIN
    fails: bool = False


def _acls(label: str, words: str, says: str = "", *, fails: bool = False) -> Command:
    return Command(label, "acls", words, says, fails=fails)


def _user(label: str, words: str, says: str = "", *, user: str = ADMIN, fails: bool = False) -> Command:
    return Command(label, "configs", words, says, user, fails)


def _token(label: str, words: str, says: str = "", *, user: str = "alice", fails: bool = False) -> Command:
    return Command(label, "delegation-tokens", words, says, user, fails)


ACLS = (
    _acls("a producer", f"--add --allow-principal {ALICE} --producer --topic t --transactional-id x --idempotent",
          "operation=WRITE"),
    _acls("a consumer", f"--add --allow-principal {ALICE} --consumer --topic t --group g", "operation=READ"),
    _acls("a prefix", f"--add --allow-principal {BOB} --operation All --topic team- --resource-pattern-type prefixed",
          "patternType=PREFIXED"),
    _acls("denied", "--add --deny-principal User:eve --deny-host 10.0.0.1 --operation Read --topic *",
          "permissionType=DENY"),
    _acls("the cluster", f"--add --allow-principal {ALICE} --operation Describe --operation AlterConfigs --cluster",
          "ALTER_CONFIGS"),
    _acls("tokens", f"--add --allow-principal {ALICE} --operation Describe --delegation-token tok", "DELEGATION_TOKEN"),
    _acls("users", f"--add --allow-principal {ALICE} --operation CreateTokens --user-principal User:carol",
          "CREATE_TOKENS"),
    _acls("all", "--list", "team-"),
    _acls("of a topic", "--list --topic team-one --resource-pattern-type match", BOB),
    _acls("of a principal", f"--list --principal {ALICE}", ALICE),
    _acls("no consumer", f"--remove --force --allow-principal {ALICE} --consumer --topic t --group g"),
    _acls("no prefix", "--remove --force --topic team- --resource-pattern-type prefixed"),
    _acls("what is left", "--list", "User:eve"),
    _acls("wrong operation", f"--add --allow-principal {ALICE} --operation CreateTokens --topic t", fails=True),
    _acls("wrong principal", "--add --allow-principal alice --operation Read --topic t", fails=True),
)  # fmt: skip
CAROL = "--entity-type users --entity-name carol"
CONFIGS = (
    _user("a user", f"--alter {CAROL} --add-config SCRAM-SHA-256=[iterations=8192,password=secret]",
          "Completed updating"),
    _user("another mechanism", f"--alter {CAROL} --add-config SCRAM-SHA-512=[password=secret]", "Completed updating"),
    _user("of the user", f"--describe {CAROL}", "SCRAM-SHA-256=iterations=8192"),
    _user("all users", "--describe --entity-type users", "carol"),
    _user("a new password", f"--alter {CAROL} --add-config SCRAM-SHA-256=[iterations=4096,password=other]"),
    _user("of the user then", f"--describe {CAROL}", "SCRAM-SHA-256=iterations=4096"),
    _user("too few iterations", f"--alter {CAROL} --add-config SCRAM-SHA-256=[iterations=100,password=secret]",
          fails=True),
    _user("too many iterations", f"--alter {CAROL} --add-config SCRAM-SHA-256=[iterations=20000,password=secret]",
          fails=True),
    _user("unknown mechanism", f"--alter {CAROL} --add-config SCRAM-SHA-1=[password=secret]", fails=True),
    _user("two at once", f"--alter {CAROL} --add-config SCRAM-SHA-256=[password=a],SCRAM-SHA-512=[password=a]",
          fails=True),
    _user("the default user", "--alter --entity-type users --entity-default --add-config SCRAM-SHA-256=[password=a]",
          fails=True),
    _user("refused", f"--alter {CAROL} --add-config SCRAM-SHA-256=[password=secret]", user="bob", fails=True),
    _user("refused to see", "--describe --entity-type users", user="bob", fails=True),
    _user("a quota", f"--alter {CAROL} --add-config producer_byte_rate=1024,request_percentage=50"),
    _user("of a client", "--alter --entity-type clients --entity-name app --add-config consumer_byte_rate=2048"),
    _user("of both", f"--alter {CAROL} --entity-type clients --entity-name app --add-config producer_byte_rate=1"),
    _user("of all users", "--alter --entity-type users --entity-default --add-config controller_mutation_rate=5"),
    _user("of any client of any user",
          "--alter --entity-type users --entity-default --entity-type clients --entity-default "
          "--add-config producer_byte_rate=7"),
    _user("of an address", "--alter --entity-type ips --entity-name 10.1.2.3 --add-config connection_creation_rate=9"),
    _user("a quota of carol's", f"--describe {CAROL}", "producer_byte_rate=1024"),
    _user("quotas of users", "--describe --entity-type users", "controller_mutation_rate=5"),
    _user("quotas of clients", "--describe --entity-type clients", "consumer_byte_rate=2048"),
    _user("quotas of both", "--describe --entity-type users --entity-type clients", "app"),
    _user("quotas of addresses", "--describe --entity-type ips", "connection_creation_rate=9"),
    _user("an unknown quota", f"--alter {CAROL} --add-config producer_rate=1", fails=True),
    _user("no number", f"--alter {CAROL} --add-config producer_byte_rate=many", fails=True),
    _user("a negative quota", f"--alter {CAROL} --add-config producer_byte_rate=-1", fails=True),
    _user("no address", "--alter --entity-type ips --entity-name 1.2.3.4.5.6 --add-config connection_creation_rate=9",
          fails=True),
    _user("no quota", f"--alter {CAROL} --delete-config producer_byte_rate"),
    _user("no such quota", f"--alter {CAROL} --delete-config consumer_byte_rate", fails=True),
    _user("no login", f"--alter {CAROL} --delete-config SCRAM-SHA-512"),
    _user("no such login", f"--alter {CAROL} --delete-config SCRAM-SHA-512", fails=True),
    _user("what is left of carol", f"--describe {CAROL}", "request_percentage=50"),
    _user("what is left", "--describe --entity-type users", "SCRAM-SHA-256=iterations=4096"),
)  # fmt: skip
TOKENS = (
    _token("a token", "--create --max-life-time-period -1 --renewer-principal User:bob", "TOKEN"),
    _token("of alice", f"--describe --owner-principal {ALICE}", "User:bob"),
    _token("of nobody", "--describe"),
    _token("of bob", f"--describe --owner-principal {BOB}"),
    _token("renewed by bob", "--renew --renew-time-period 3600000 --hmac {hmac}", user="bob"),
    _token("renewed by alice", "--renew --renew-time-period -1 --hmac {hmac}"),
    _token("renewed by somebody else", "--renew --renew-time-period -1 --hmac {hmac}", user=ADMIN, fails=True),
    _token("an unknown token", "--renew --renew-time-period -1 --hmac AAAA", fails=True),
    _token("for somebody else", f"--create --max-life-time-period -1 --owner-principal {BOB}", fails=True),
    Command("may make tokens", "acls",
            f"--add --allow-principal {ALICE} --operation CreateTokens --user-principal {BOB}"),
    _token("for somebody else, allowed", f"--create --max-life-time-period 7200000 --owner-principal {BOB}", BOB),
    _token("of bob, then", f"--describe --owner-principal {BOB}", "TOKEN", user="bob"),
    _token("ended by bob", "--expire --expiry-time-period -1 --hmac {hmac}", user="bob"),
    _token("ended again", "--expire --expiry-time-period -1 --hmac {hmac}", user="bob", fails=True),
    _token("what is left of alice's", f"--describe --owner-principal {ALICE}", "User:bob"),
)  # fmt: skip
COMMANDS = {"acls": ACLS, "configs": CONFIGS, "delegation-tokens": TOKENS}
READS = ("--list", "--describe")


class Caller:
    """Calls tools at one side, as any user."""

    def __init__(self, version: str, side: Side, directory: Path) -> None:
        self._release = release(version)
        self._side = side
        self._directory = directory
        self._hmac = ""

    def said(self, command: Command) -> list[str]:
        """Output of the tool, line by line in an order of its own, with other words for what is random."""
        words = (
            "--bootstrap-server", f"127.0.0.1:{self._side.sasl_port}", "--command-config", str(self._config(command.user)),
            *command.words.replace("{hmac}", self._hmac).split(),
        )  # fmt: skip
        done = subprocess.run(
            tool_command(self._release, command.tool, *words),
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        text = done.stdout + done.stderr
        hmac = HMAC.search(text)
        if hmac is not None and "--create" in command.words:
            self._hmac = hmac[0]
        text = LISTS.sub(lambda names: ", ".join(sorted(names[0].split(", "))), text)
        for pattern, word in RANDOM:
            text = pattern.sub(word, text)
        # Columns are as wide as what was random in them.
        lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
        return [
            f"exit code {done.returncode}",
            *sorted(line for line in lines if line and not line.startswith(("at ", "..."))),
        ]

    def _config(self, user: str) -> Path:
        path = self._directory / f"{user}.properties"
        if not path.exists():
            path.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
                f'sasl.jaas.config={MODULE} required username="{user}" password="{PASSWORD}";\n'
            )
        return path


def compared(command: Command, callers: tuple[Caller, Caller]) -> Iterator[str]:
    """Call a tool at both sides; gives what is wrong."""
    give_up = time.monotonic() + (SETTLE_S if any(word in command.words for word in READS) else 0)
    while True:
        with ThreadPoolExecutor(2) as pool:
            theirs, ours = pool.map(lambda caller: caller.said(command), callers)
        if theirs == ours or time.monotonic() > give_up:
            break
    for name, lines, others in (("Kafka", theirs, ours), ("Barnabas", ours, theirs)):
        yield from (f"{name} {line}" for line in lines if line not in others)
        if not any(command.says in line for line in lines):
            yield f"{name} does not say {command.says!r}: {lines}"
        failed = lines[0] != "exit code 0" or any("rror" in line or "xception" in line for line in lines)
        if failed != command.fails:
            yield f"{name} {'fails' if failed else 'does not fail'}: {lines}"


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.security.tools", description=__doc__)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument("--tool", action="append", choices=COMMANDS, help="only this one; may be repeated")
    parser.add_argument("--only", default="", metavar="REGEX", help="only commands whose label matches")
    options = parser.parse_args()
    commands = [
        command
        for tool in options.tool or COMMANDS
        for command in COMMANDS[tool]
        if re.search(options.only, command.label)
    ]
    bad = 0
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tools-") as name,
            both(options.version, more=SETTINGS) as sides,
        ):
            kafka, ours = (Caller(options.version, side, Path(name)) for side in sides)
            for command in commands:
                wrong = list(compared(command, (kafka, ours)))
                bad += bool(wrong)
                print(f"{'differs' if wrong else 'same'}: {command.tool}: {command.label}", flush=True)
                for line in wrong:
                    print(f"  {line}")
    except (KafkaError, StartError, subprocess.TimeoutExpired) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(commands)} commands, {bad} of them with other answers")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
