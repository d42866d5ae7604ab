"""Verdicts of Avro for Java, protoc, Wire and the meta-schemas of JSON Schema on texts of schemas.

    python -m compat.registry.texts             # says what differs from tests/golden/registry
    python -m compat.registry.texts --write     # writes it there

Wire is the parser of Confluent's registry. Needs a JDK 17 and Maven; what it installs goes to .tools/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable

from compat.clients.shared.setup import ROOT, Client, python
from compat.registry.texts import avro, json_schema, protobuf

GOLDEN = ROOT / "tests" / "golden" / "registry"
_PROTOC = """
import json, os, sys
import grpc_tools
from grpc_tools import protoc
include = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
for line in sys.stdin:
    with open("x.proto", "w") as file:
        file.write(json.loads(line))
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os._exit(protoc.main(["protoc", "-I.", "-I" + include, "--descriptor_set_out=" + os.devnull, "x.proto"]) != 0)
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 or None))
"""


class Peers:
    """Programs that read texts."""

    def __init__(self) -> None:
        client = Client(__file__)
        client.place.mkdir(parents=True, exist_ok=True)
        pom = client.source / "java" / "pom.xml"
        goals = "compile", "dependency:build-classpath", f"-Dmdep.outputFile={client.place}/paths"
        client.call("mvn", "-q", "-B", "-f", pom, *goals)
        jars = (client.place / "paths").read_text()
        self._java = ["java", "-cp", f"{client.source}/java/target/classes:{jars}", "Texts"]
        command, _ = python(client, "")
        self._python = command[0]

    def java(self, program: str, texts: Iterable[str]) -> list[object]:
        """Return what a Java library makes of texts, None for each that it refuses."""
        return _asked([*self._java, program], texts)

    def protoc(self, texts: Iterable[str]) -> list[object]:
        """Return True for each text that protoc takes, None for any other."""
        return _asked([self._python, "-c", _PROTOC], texts)


def _asked(command: list[str], texts: Iterable[str]) -> list[object]:
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            command, input=lines, capture_output=True, text=True, check=True, encoding="utf-8", cwd=directory
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def verdicts(peers: Peers) -> dict[str, str]:
    """Return the files of golden verdicts by their names."""
    texts = list(dict.fromkeys(avro.texts()))
    printed = peers.java("avro", texts)
    rows: list[object] = [
        {"text": text, **({} if answers is None else {"printed": answers if answers != text else True})}
        for text, answers in zip(texts, printed, strict=True)
    ]
    files = {"avro_texts.jsonl": _lines(rows)}

    groups = json_schema.groups()
    answers = iter(peers.java("json", [head % value for head, values in groups for value in values]))
    rows = []
    for head, values in groups:
        taken = [value for value, verdict in zip(values, answers, strict=False) if verdict]
        rows.append(
            {"text": head, "taken": taken, "refused": [value for value in values if value not in taken]}
        )
    files["json_schema_texts.jsonl"] = _lines(rows)

    texts = list(dict.fromkeys(protobuf.texts()))
    pairs = zip(texts, peers.protoc(texts), peers.java("wire", texts), strict=True)
    rows = [{"text": text, "protoc": bool(protoc), "wire": bool(wire)} for text, protoc, wire in pairs]
    files["protobuf_texts.jsonl"] = _lines(rows)
    return files


def _lines(rows: Iterable[object]) -> str:
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(
        prog="python -m compat.registry.texts", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--write", action="store_true", help="write the verdicts to tests/golden/registry")
    arguments = parser.parse_args()
    differing = 0
    for name, content in verdicts(Peers()).items():
        path = GOLDEN / name
        before = path.read_text().splitlines() if path.exists() else []
        after = content.splitlines()
        changed = set(before) ^ set(after)
        differing += len(changed)
        print(f"{name}: {len(after)} lines, {len(changed)} differ")
        if arguments.write:
            path.write_text(content)
    return 1 if differing and not arguments.write else 0


if __name__ == "__main__":
    sys.exit(main())
