"""Kafka's own kafka-acls.sh against Apache Kafka and Barnabas: python -m compat.security.tools [--version 4.x].

The same commands to both, and the same lines from both; the exit code is 1 when they differ.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compat.kafka import KafkaError
from compat.kafka.releases import release
from compat.kafka.tools import tool_command
from compat.kit.sides import PASSWORD, Side, StartError
from compat.security.sides import ADMIN, MODULE, both

TIMEOUT_S = 60
ALICE, BOB = "User:alice", "User:bob"
COMMANDS = {
    "a producer": f"--add --allow-principal {ALICE} --producer --topic t --transactional-id x --idempotent",
    "a consumer": f"--add --allow-principal {ALICE} --consumer --topic t --group g",
    "a prefix": f"--add --allow-principal {BOB} --operation All --topic team- --resource-pattern-type prefixed",
    "denied": "--add --deny-principal User:eve --deny-host 10.0.0.1 --operation Read --topic *",
    "the cluster": f"--add --allow-principal {ALICE} --operation Describe --operation AlterConfigs --cluster",
    "tokens and users": f"--add --allow-principal {ALICE} --operation Describe --delegation-token tok",
    "users": f"--add --allow-principal {ALICE} --operation CreateTokens --user-principal User:carol",
    "all": "--list",
    "of a topic": "--list --topic team-one --resource-pattern-type match",
    "of a principal": f"--list --principal {ALICE}",
    "no consumer": f"--remove --force --allow-principal {ALICE} --consumer --topic t --group g",
    "no prefix": "--remove --force --topic team- --resource-pattern-type prefixed",
    "what is left": "--list",
    "wrong operation": f"--add --allow-principal {ALICE} --operation CreateTokens --topic t",
    "wrong principal": "--add --allow-principal alice --operation Read --topic t",
}


def said(version: str, side: Side, config: Path, command: str) -> list[str]:
    """What the tool writes, line by line, in an order of its own."""
    words = [
        "--bootstrap-server",
        f"127.0.0.1:{side.sasl_port}",
        "--command-config",
        str(config),
        *command.split(),
    ]
    done = subprocess.run(
        tool_command(release(version), "acls", *words),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    return [
        f"exit code {done.returncode}",
        *sorted(line for line in lines if line and not line.startswith("at ")),
    ]


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.security.tools", description=__doc__)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    options = parser.parse_args()
    bad = 0
    try:
        with tempfile.TemporaryDirectory(prefix="tools-") as name, both(options.version) as sides:
            config = Path(name) / "admin.properties"
            config.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
                f'sasl.jaas.config={MODULE} required username="{ADMIN}" password="{PASSWORD}";\n'
            )
            with ThreadPoolExecutor(2) as pool:
                for label, command in COMMANDS.items():
                    theirs, ours = pool.map(lambda side: said(options.version, side, config, command), sides)  # noqa: B023
                    if theirs == ours:
                        print(f"same: {label}: {len(theirs) - 1} lines")
                        continue
                    bad += 1
                    print(f"differs: {label}")
                    print("".join(f"  Kafka    {line}\n" for line in theirs if line not in ours), end="")
                    print("".join(f"  Barnabas {line}\n" for line in ours if line not in theirs), end="")
    except (KafkaError, StartError, subprocess.TimeoutExpired) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(COMMANDS)} commands, {bad} of them with other answers")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
