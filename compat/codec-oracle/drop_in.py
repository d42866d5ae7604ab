"""Feed the definitions inside a Kafka release to the protocol compiler, unchanged.

    compat/codec-oracle/drop_in.py 3.9.2 4.4.0

Each file must be accepted, have the layouts of `schemas/layouts.lock` in every version, and generate code that compiles.
Layouts that Kafka itself changed before they were final are listed in `compare.py`.
"""

from __future__ import annotations

import argparse
import ast
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from compare import DRAFTS, ROOT, TAGGED_SINCE, build, release

from codegen.checks import check_message
from codegen.layouts import layout_of, read_lock
from codegen.model import Message, SchemaError
from codegen.parse import parse_message
from codegen.render import group, render_module
from tests.support.messages import all_messages

EARLIER_NAMES = {
    "ListClientMetricsResourcesRequest": "ListConfigResourcesRequest",
    "ListClientMetricsResourcesResponse": "ListConfigResourcesResponse",
}
"""APIs that got another name (KIP-1142)."""


def definitions(kafka: str) -> Iterator[tuple[str, str]]:
    """The name and text of every definition in the jars of a release."""
    build(kafka)
    for jar in sorted((ROOT / ".tools" / "codec-oracle" / kafka / "lib").glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(archive.namelist()):
                if name.startswith("common/message/") and name.endswith(".json"):
                    yield name, archive.read(name).decode()


def load(name: str, text: str) -> Message | None:
    """Parse a definition as if it were in `schemas`, where the folder of a record is that of its topic."""
    ours = all_messages().get(Path(name).stem)
    return parse_message(text, Path("schemas", ours.path.parent.name if ours else "api", Path(name).name))


def problems(kafka: str, message: Message) -> Iterator[str]:
    """Problems of one definition."""
    try:
        check_message(message)
    except SchemaError as error:
        yield str(error)
        return
    lock = read_lock(ROOT / "schemas" / "layouts.lock")
    # Before 4.1 the version of a record's key was its type.
    numbered_by_type = message.kind == "data" and message.name.endswith("Key")
    name = EARLIER_NAMES.get(message.name, message.name)
    for version in message.versions:
        recorded = lock.get((name, 0 if numbered_by_type else version))
        if recorded is None:
            if not (message.latest_unstable and version == message.versions.last):
                yield f"v{version} is not in the lock"
            continue
        layout = layout_of(message, version)
        draft = release(kafka) < release(DRAFTS.get(message.name, "0"))
        if layout.plain != recorded.plain and not draft:
            yield f"v{version} has another layout than the lock"
        if not layout.tags <= recorded.tags or (
            layout.tags != recorded.tags and message.name not in TAGGED_SINCE
        ):
            yield f"v{version} has the tagged fields {sorted(layout.tags)}, the lock {sorted(recorded.tags)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kafka", nargs="*", default=["3.9.2", "4.4.0"])
    failed = False
    for kafka in parser.parse_args().kafka:
        loaded = [load(name, text) for name, text in definitions(kafka)]
        messages = [message for message in loaded if message is not None]
        for message in messages:
            for problem in problems(kafka, message):
                failed = True
                print(f"{kafka} {message.name}: {problem}")
        for module in group(messages):
            ast.parse(render_module(module))
        failed = failed or not messages
        versions = sum(len(list(message.versions)) for message in messages)
        print(f"Kafka {kafka}: {len(loaded)} definitions, {versions} versions")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
