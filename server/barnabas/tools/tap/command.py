"""The `barnabas tap` command: options in, a proxy or the reading of a capture out.

The rule: lines about traffic go to standard output, all else to standard error. A failed output does not stop traffic, but
the exit code reports it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

import trio

from barnabas import __version__
from barnabas.client.settings import Endpoint, parse_bootstrap
from barnabas.ending import DONE, FAILED, USAGE_ERROR, end_signals
from barnabas.environment import log_lines
from barnabas.errors import leaves
from barnabas.system.files import raise_open_files
from barnabas.tools.inspection.records import RecordsView
from barnabas.tools.tap import rendering, summary_rendering
from barnabas.tools.tap.capture_reading import CaptureError
from barnabas.tools.tap.capture_writing import CaptureStream, CaptureWriter
from barnabas.tools.tap.captured import Captured
from barnabas.tools.tap.exchange import Connection, Observer
from barnabas.tools.tap.filters import Filter, FilterError
from barnabas.tools.tap.observers import (
    LINES_PER_SECOND,
    JsonLines,
    Several,
    Terminal,
    left_out_as_json,
    left_out_as_text,
)
from barnabas.tools.tap.output import DirectWriter, LineWriter
from barnabas.tools.tap.proxy import MEMORY_BYTES, Proxy, ProxySettings
from barnabas.tools.tap.summary import Summary
from barnabas.tools.tap.tls import TlsFiles, TlsOptionError, client_context, generated, server_context

END_SECONDS = 5.0
"""Seconds for writing the remaining output at the end."""
APPLICATION = f"barnabas tap {__version__}"


class OptionError(ValueError):
    """Options that cannot be meant."""


def main(arguments: Sequence[str]) -> int:
    """Run `barnabas tap`; returns the exit code."""
    options = parser().parse_args(arguments)
    log_lines.begin(options.log_level)
    try:
        filter_ = filter_of(options)
        if options.read is not None:
            return _read(options, filter_)
        if options.broker is None:
            raise OptionError("name a broker as HOST:PORT, or a capture with --read FILE")
        settings = proxy_settings(options)
    except (OptionError, FilterError, TlsOptionError) as error:
        print(f"barnabas tap: {error}", file=sys.stderr)
        return USAGE_ERROR
    raise_open_files()  # two sockets for each connection
    code = FAILED
    try:
        code = trio.run(serve, options, settings, filter_, restrict_keyboard_interrupt_to_checkpoints=True)
    except* OSError as group:
        print(f"barnabas tap: {leaves(group)[0]}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(
        prog="barnabas tap",
        description="Stand between clients and the brokers of a cluster, and show what they say to each other.",
    )
    parser.add_argument(
        "broker",
        metavar="BROKER",
        nargs="?",
        help="HOST:PORT of a broker, or several with commas between them",
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", type=_address, default=("localhost", 19092),
        help="where clients connect (default: localhost:19092; port 0 for a free one); the other brokers of the cluster "
        "get the ports after it",
    )  # fmt: skip
    parser.add_argument(
        "--advertise", metavar="HOST", default="",
        help="the host that clients are told (default: the one that they have connected to)",
    )  # fmt: skip
    parser.add_argument(
        "--memory", metavar="MB", type=int, default=MEMORY_BYTES >> 20,
        help="how much large requests and answers may take together while they pass (default: %(default)s)",
    )  # fmt: skip
    _add_tls(parser)
    add_shown(parser)
    reading = parser.add_argument_group("reading a capture instead")
    reading.add_argument("--read", metavar="FILE", help="show what is in this pcap or pcapng file")
    reading.add_argument(
        "--port", metavar="PORT", type=int, action="append", default=[],
        help="the port of a broker in the capture; may be repeated (default: every connection that looks like Kafka's)",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error"),
        help="how much to log on standard error (default: %(default)s)",
    )  # fmt: skip
    return parser


def _add_tls(parser: argparse.ArgumentParser) -> None:
    clients = parser.add_argument_group("TLS with clients")
    clients.add_argument("--tls", action="store_true", help="accept clients with TLS only")
    clients.add_argument(
        "--certificate", metavar="FILE", help="the tap's certificate (PEM; default: one is made)"
    )
    clients.add_argument("--key", metavar="FILE", help="its key (PEM)")
    clients.add_argument(
        "--client-ca", metavar="FILE", help="clients must show a certificate of this authority (PEM)"
    )
    clients.add_argument(
        "--tls-directory", metavar="DIR", default="barnabas-tap",
        help="where a certificate is made, and its authority for clients to trust (default: %(default)s)",
    )  # fmt: skip
    brokers = parser.add_argument_group("TLS with brokers")
    brokers.add_argument("--broker-tls", action="store_true", help="reach brokers with TLS")
    brokers.add_argument(
        "--broker-ca", metavar="FILE", help="the authority of their certificates (PEM; default: the system's)"
    )
    brokers.add_argument(
        "--broker-certificate", metavar="FILE", help="the certificate that is shown to them (PEM)"
    )
    brokers.add_argument("--broker-key", metavar="FILE", help="its key (PEM)")
    brokers.add_argument("--broker-key-password", metavar="TEXT", default="", help="the key's password")
    brokers.add_argument(
        "--broker-any-name", action="store_true", help="do not compare a broker's name with its certificate"
    )


class _OptionParser(argparse.ArgumentParser):
    """A parser that raises its errors."""

    def error(self, message: str) -> NoReturn:
        """Raise OptionError."""
        raise OptionError(message)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of views. Raises OptionError."""
    parser = _OptionParser(prog="--tap", add_help=False, allow_abbrev=False)
    add_shown(parser)
    return parser.parse_args(arguments)


def add_shown(parser: argparse.ArgumentParser) -> None:
    """Add the options of views."""
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("-v", "--verbose", action="store_true", help="show all fields of requests and answers")
    shown.add_argument("-q", "--quiet", action="store_true", help="show no requests")
    shown.add_argument(
        "--records", choices=("text", "hex"), nargs="?", const="text",
        help="show records too, keys, values and headers as text where they are text (text), or as hex",
    )  # fmt: skip
    shown.add_argument(
        "--lines", metavar="N", type=int, default=LINES_PER_SECOND,
        help="show at most so many requests a second, and count the others; 0 for all (default: %(default)s)",
    )  # fmt: skip
    shown.add_argument(
        "--json",
        metavar="FILE",
        help="write all events as JSON lines too; - for standard output, then without text",
    )
    shown.add_argument(
        "--pcap",
        metavar="FILE",
        help="write a pcapng file, for Wireshark and `barnabas replay`; secrets are overwritten",
    )
    shown.add_argument(
        "--summary",
        action="store_true",
        help="at the end, say what each client did and what of it is unusual",
    )
    only = parser.add_argument_group("filters (names may have * and ?; may be repeated)")
    only.add_argument(
        "--api", metavar="NAME", action="append", default=[], help="only this API, as in Produce"
    )
    only.add_argument(
        "--client-id", metavar="NAME", action="append", default=[], help="only clients with this client id"
    )
    only.add_argument(
        "--topic", metavar="NAME", action="append", default=[], help="only requests that name this topic"
    )
    only.add_argument("--errors", action="store_true", help="only requests that failed")
    only.add_argument(
        "--slower", metavar="MS", type=float, help="only requests whose answer took at least so long"
    )


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: HOST:PORT expected")
    return host.strip("[]"), int(port)


def filter_of(options: argparse.Namespace) -> Filter:
    """Return the filter of the options. Raises FilterError."""
    return Filter(
        tuple(options.api), tuple(options.client_id), tuple(options.topic), options.errors, options.slower
    )


def proxy_settings(options: argparse.Namespace) -> ProxySettings:
    """Return the options' settings for connections. Raises OptionError, TlsOptionError."""
    try:
        brokers: list[Endpoint] = parse_bootstrap(options.broker)
    except ValueError as error:
        raise OptionError(str(error)) from error
    if options.memory < 1:
        raise OptionError("--memory is a number of megabytes, at least 1")
    host, port = options.listen
    client_tls = None
    if options.tls or options.certificate or options.client_ca:
        files = TlsFiles(options.certificate, options.key)
        if options.certificate is None:
            files = generated(Path(options.tls_directory), tuple(filter(None, (options.advertise, host))))
            print(f"barnabas tap: clients trust its certificate by {files.authority}", file=sys.stderr)
        client_tls = server_context(files, options.client_ca)
    broker_tls = None
    if options.broker_tls or options.broker_ca or options.broker_certificate:
        files = TlsFiles(
            options.broker_certificate, options.broker_key, options.broker_key_password, options.broker_ca
        )
        broker_tls = client_context(files, checks_name=not options.broker_any_name)
    return ProxySettings(
        tuple(brokers), host, port, options.advertise, client_tls, broker_tls, options.memory << 20
    )


# --- output --------------------------------------------------------------------------------------------------------


class Views:
    """Outputs that the options ask for: terminal and files."""

    def __init__(
        self, options: argparse.Namespace, filter_: Filter, files: ExitStack, *, is_live: bool
    ) -> None:
        """Open files. Raises OSError."""
        self.writers: list[tuple[str, LineWriter | DirectWriter]] = []
        self.summary = Summary()
        self.terminal: Terminal | None = None
        observers: list[Observer] = [self.summary] if options.summary else []
        view = RecordsView(as_hex=options.records == "hex") if options.records else None
        self.reads_records = view is not None
        """True if record batches are looked into."""
        self._is_json_shown = options.json == "-"
        if options.json:
            file: Any = sys.stdout
            if not self._is_json_shown:
                file = open(options.json, "w", encoding="utf-8")  # noqa: SIM115
                files.callback(_close, file)
            observers.append(
                JsonLines(self._writer(options.json, file, left_out_as_json, is_live), filter_, view)
            )
        if not self._is_json_shown and not options.quiet:
            lines = options.lines if options.lines > 0 and is_live else None
            self.terminal = Terminal(
                self._writer("standard output", sys.stdout, left_out_as_text, is_live), filter_,
                is_verbose=options.verbose, view=view, lines_per_second=lines,
            )  # fmt: skip
            observers.append(self.terminal)
        self.observer = Several(observers)
        self.only_terminal = self.terminal if len(observers) == 1 and filter_.is_empty else None
        """The terminal, if it is the only observer and there is no filter; None otherwise."""
        self.capture: CaptureWriter | None = None
        if options.pcap:
            file = open(options.pcap, "wb")  # noqa: SIM115
            files.callback(_close, file)
            self.capture = CaptureWriter(file, APPLICATION)

    def _writer(
        self, name: str, file: Any, left_out: Callable[[int], str], is_live: bool
    ) -> Callable[[str], None]:
        """Return the function that writes a line to a file; for live traffic it does not block."""
        if not is_live:
            direct = DirectWriter(file)
            self.writers.append((name, direct))
            return direct.put

        def write(text: str) -> None:
            file.write(text)
            file.flush()

        writer = LineWriter(write, left_out)
        self.writers.append((name, writer))
        return writer.put

    def begin_lines(self, writing: trio.Nursery) -> None:
        """Begin the tasks of writers in this nursery."""
        for name, writer in self.writers:
            if isinstance(writer, LineWriter):
                writing.start_soon(_write_lines, name, writer)

    def failures(self) -> list[str]:
        """Return the outputs that failed, with reasons, after the last write."""
        return [
            f"nothing more is written to {name}: {writer.failure}"
            for name, writer in self.writers
            if writer.failure is not None
        ]

    def end_lines(self, writing: trio.Nursery) -> None:
        """Have the tasks of writers, in this nursery, end when all is written."""
        if self.terminal is not None:
            self.terminal.finish()
            self.terminal = self.only_terminal = None
        for _, writer in self.writers:
            writer.close()
        writing.cancel_scope.deadline = trio.current_time() + END_SECONDS

    def finish(self, *, with_summary: bool) -> None:
        """Show the summary."""
        if self.terminal is not None:
            self.terminal.finish()
        if with_summary and not self._is_json_shown:
            print("\n".join(map(rendering.safe, summary_rendering.as_text(self.summary))), flush=True)
        elif with_summary:
            import json

            for client in summary_rendering.as_json(self.summary):
                print(json.dumps(client), flush=True)

    def close_capture(self) -> str:
        """Flush the capture; returns an error text, or an empty one."""
        if self.capture is None:
            return ""
        try:
            self.capture.close()
        except OSError as error:
            return str(error)
        return str(self.capture.failure or "")


def _close(file: IO[Any]) -> None:
    """Close a file; write errors have been reported before."""
    with suppress(OSError):
        file.close()


# --- the proxy ----------------------------------------------------------------------------------------------------


class _Ends:
    """An observer that closes a connection's stream in the capture."""

    def __init__(self, inner: Observer) -> None:
        self.streams: dict[int, CaptureStream] = {}
        self.opened = inner.opened
        self.exchanged = inner.exchanged
        self.noted = inner.noted
        self._closed = inner.closed

    def closed(self, connection: Connection, at: float, reason: str) -> None:
        """Take note of the end of a connection."""
        stream = self.streams.pop(connection.id, None)
        if stream is not None:
            stream.close(at)
        self._closed(connection, at, reason)


async def serve(options: argparse.Namespace, settings: ProxySettings, filter_: Filter) -> int:
    """Serve until a signal; returns the exit code. Raises OSError."""
    problem = ""
    with (
        ExitStack() as files,
        trio.open_signal_receiver(*end_signals()) as signals,
    ):
        views = Views(options, filter_, files, is_live=True)
        ends = _Ends(views.observer)

        def keeper(connection: Connection, client: tuple[str, int], broker: tuple[str, int]) -> CaptureStream:
            assert views.capture is not None
            stream = ends.streams[connection.id] = views.capture.stream(client, broker, time.time())
            return stream

        async with trio.open_nursery() as writing:
            views.begin_lines(writing)
            try:
                async with trio.open_nursery() as nursery:
                    proxy = Proxy(
                        settings, ends, keeper=keeper if views.capture is not None else None,
                        reads_records=views.reads_records,
                    )  # fmt: skip
                    port = await nursery.start(proxy.run)
                    print(
                        f"barnabas tap is ready: {Endpoint(settings.host, port)} for {options.broker}",
                        file=sys.stderr,
                        flush=True,
                    )
                    async for _ in signals:
                        break
                    nursery.cancel_scope.cancel()
            finally:
                views.end_lines(writing)
                problem = views.close_capture()
                if problem:
                    print(f"barnabas tap: {options.pcap}: {problem}", file=sys.stderr)
        views.finish(with_summary=options.summary)
        has_failed = problem or views.failures()
    return FAILED if has_failed else DONE


async def _write_lines(name: str, writer: LineWriter) -> None:
    """Write lines until the writer is closed; print a failure on standard error."""
    await writer.run()
    if writer.failure is not None:
        print(f"barnabas tap: nothing more is written to {name}: {writer.failure}", file=sys.stderr)


# --- a capture ----------------------------------------------------------------------------------------------------


def _read(options: argparse.Namespace, filter_: Filter) -> int:
    """Show the content of a capture; returns the exit code."""
    with ExitStack() as files:
        try:
            source = files.enter_context(open(options.read, "rb"))
            views = Views(options, filter_, files, is_live=False)
        except OSError as error:
            print(f"barnabas tap: {error}", file=sys.stderr)
            return FAILED
        ends = _Ends(views.observer)
        make_keeper = None
        if views.capture is not None:
            capture = views.capture

            def make_keeper(connection: Connection) -> CaptureStream:
                addresses = [_parts(text) for text in (connection.client, connection.broker)]
                stream = capture.stream(addresses[0], addresses[1], connection.opened_at)
                ends.streams[connection.id] = stream
                return stream

        captured = Captured(ends, ports=options.port, make_keeper=make_keeper)
        code = DONE
        try:
            captured.read(source)
        except BrokenPipeError:
            raise  # the reader has closed its pipe
        except (CaptureError, OSError) as error:
            print(f"barnabas tap: {options.read}: {error}", file=sys.stderr)
            code = FAILED
        views.finish(with_summary=options.summary)
        for _, writer in views.writers:
            writer.close()
        problem = views.close_capture()
        for text in (*([f"{options.pcap}: {problem}"] if problem else ()), *views.failures()):
            print(f"barnabas tap: {text}", file=sys.stderr)
            code = FAILED
        for line in captured.report.lines():
            print(f"barnabas tap: {line}", file=sys.stderr)
    return code


def _parts(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
