"""The `barnabas replay` command: a recorded session sent to another broker, and its answers compared.

The rule: 0 means that all answers are as recorded, 1 that some differ, 2 that the command could not do its work.
Differences go to standard output, all else to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import trio

from barnabas.client.errors import ClientError
from barnabas.client.settings import ClientSettings, Endpoint, parse_bootstrap
from barnabas.ending import DONE, FOUND, failed
from barnabas.environment.terminal import counted
from barnabas.errors import leaves
from barnabas.tools.tap import rendering
from barnabas.tools.tap.capture_reading import CaptureError
from barnabas.tools.tap.comparison import OFFSETS
from barnabas.tools.tap.may_differ import MAY_DIFFER
from barnabas.tools.tap.recording import Recording, read_recording
from barnabas.tools.tap.replaying import Outcome, Replay, Result, brokers_of, standins

FAILED = failed("replay")
SPEEDS = ("as-recorded", "max")


def main(
    arguments: Sequence[str],
    *,
    find_brokers: Callable[..., Awaitable[dict[int, Endpoint]]] = brokers_of,
    replay: Callable[..., Replay] = Replay,
) -> int:
    """Run `barnabas replay`; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        endpoints = parse_bootstrap(options.to)
        settings = ClientSettings.of(properties_of(options.config), client_id="barnabas-replay")
        with open(options.file, "rb") as file:
            recording = read_recording(file, options.port)
    except (OSError, CaptureError, ValueError) as error:
        where = f"{options.file}: " if isinstance(error, CaptureError) else ""
        print(f"barnabas replay: {where}{error}", file=sys.stderr)
        return FAILED
    for line in recording.report.lines():
        print(f"barnabas replay: {line}", file=sys.stderr)
    for reason, count in recording.left_out.most_common():
        print(f"barnabas replay: not sent again: {count} {reason}", file=sys.stderr)
    if not recording.count:
        print(f"barnabas replay: {options.file}: there is no request to be sent again", file=sys.stderr)
        return FAILED
    result = Result()
    is_done = False
    try:
        live = partial(find_brokers, endpoints, settings)
        result = trio.run(_run, options, recording, live, partial(replay, settings=settings))
        is_done = True
    except* ClientError as group:
        print(f"barnabas replay: {leaves(group)[0]}", file=sys.stderr)
    if not is_done:
        return FAILED
    print(
        f"barnabas replay: {result.sent} of {counted(recording.count, 'request')} sent on "
        f"{counted(len(recording.connections), 'connection')} in "
        f"{result.seconds:.1f} s, {counted(result.compared, 'answer')} compared, {len(result.different)} differ",
        file=sys.stderr,
    )
    return FOUND if result.different else DONE


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    allowed = "\n".join(f"  {name}: {row.reason}" for name, row in MAY_DIFFER.items())
    parser = argparse.ArgumentParser(
        prog="barnabas replay",
        description="Send the requests of a recorded session to another broker, and compare its answers with the "
        "recorded ones.",
        epilog=f"These fields may have other values of their kind:\n{allowed}\n"
        "Producer ids and epochs, member ids, generations, session ids, "
        "topic ids and leader epochs are replaced by those of the other broker.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", metavar="FILE", help="what `barnabas tap --pcap` wrote, or another pcap or pcapng file"
    )
    parser.add_argument(
        "--to",
        metavar="BROKER",
        required=True,
        help="HOST:PORT of a broker, or several with commas between them",
    )
    parser.add_argument(
        "--speed", choices=SPEEDS, default="max",
        help="max: as soon as the answers are there that a request followed; as-recorded: not before its time either "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="client settings for TLS and SASL, as for librdkafka (NAME=VALUE lines)",
    )
    parser.add_argument(
        "--port", metavar="PORT", type=int, action="append", default=[],
        help="the port of a broker in the capture; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--allow", metavar="FIELD", action="append", default=[],
        help=f"a field that may differ too, as in error_message; {OFFSETS} for all offsets; may be repeated",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print differences as JSON lines")
    return parser


async def _run(
    options: argparse.Namespace,
    recording: Recording,
    live: Callable[[], Awaitable[dict[int, Endpoint]]],
    replay: Callable[..., Replay],
) -> Result:
    """Replay. Raises ClientError if the brokers cannot be reached."""
    brokers = standins(recording, await live())
    show = _show_json if options.json else _show
    return await replay(
        recording, brokers,
        is_timed=options.speed == "as-recorded", allowed=options.allow, on_outcome=show,
    ).run()  # fmt: skip


def _show(outcome: Outcome) -> None:
    print(rendering.safe(rendering.line(outcome.exchange)))
    if outcome.failure:
        print(f"    no answer: {outcome.failure}")
    for difference in outcome.differences:
        print(rendering.safe(f"    {difference.path}: recorded {difference.recorded}, now {difference.live}"))
    sys.stdout.flush()


def _show_json(outcome: Outcome) -> None:
    exchange = outcome.exchange
    shown: dict[str, Any] = {
        "connection": exchange.connection.id,
        "number": exchange.number,
        "api": exchange.request.api,
        "version": exchange.request.version,
        "client_id": exchange.request.client_id,
        "failure": outcome.failure or None,
        "differences": [difference._asdict() for difference in outcome.differences],
    }
    print(json.dumps(shown), flush=True)


def properties_of(path: str | None) -> Mapping[str, str]:
    """Return the settings of a file. Raises OSError, ValueError."""
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        return dict(_pair(path, number, line) for number, line in enumerate(file, 1) if _is_setting(line))


def _is_setting(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _pair(path: str, number: int, line: str) -> tuple[str, str]:
    name, equals, value = line.strip().partition("=")
    if not equals:
        raise ValueError(f"{path}:{number}: NAME=VALUE expected")
    return name.strip(), value.strip()
