"""`barnabas tap` in this process: options, captures that are read, exit codes, what goes where."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.ending import DONE, FAILED, USAGE_ERROR
from barnabas.tools.tap import command
from barnabas.tools.tap.command import Views, filter_of, options_of
from barnabas.tools.tap.tls import TlsFiles, TlsOptionError, client_context, generated, server_context
from barnabas.wire.generated.metadata import MetadataRequest
from tests.unit.tools.tap.test_captures import CONVERSATION, written
from tests.unit.tools.tap.test_session import metadata, request, response


def tap(*arguments: object) -> int:
    return command.main([str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("options", "apis"),
    [
        (("--errors",), ["Heartbeat"]),
        (("--api", "meta*"), ["Metadata"] * 3),
        (("--api", "Fetch"), []),
        (("--client-id", "oth*"), ["Heartbeat"]),
        (("--topic", "t"), []),
        (("--slower", "1e9"), []),
        (("--port", "9092"), ["Metadata"] * 3 + ["Heartbeat"]),
        (("--port", "9093"), []),
        (("--port", "9093", "--port", "9092", "--api", "Heartbeat"), ["Heartbeat"]),
        (("--quiet",), []),
        (("--lines", "1"), ["Metadata"] * 3 + ["Heartbeat"]),  # a capture has time
    ],
)
def test_what_is_shown_of_a_capture_is_chosen(
    capture: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], apis: list[str]
) -> None:
    assert tap("--read", capture, *options) == DONE
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[3] for line in lines if "->" in line] == apis


def test_json_goes_to_a_file_or_alone_to_standard_output(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "events.json"
    assert tap("--read", capture, "--json", path, "--summary") == DONE
    out = capsys.readouterr().out
    kinds = ["opened", *["exchange"] * 4, "closed"]
    assert [json.loads(line)["type"] for line in path.read_text().splitlines()] == kinds
    assert out.count("->") == 4
    assert out.splitlines()[6].startswith("app")
    assert tap("--read", capture, "--json", "-", "--summary") == DONE
    result = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["type"] for row in result] == [*kinds, "client", "client"]
    assert [row["client_id"] for row in result[-2:]] == ["app", "other"]
    assert tap("--read", capture, "--json", "-") == DONE
    assert "client" not in [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]


def test_fields_and_records_are_shown_where_they_are_asked_for(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, count in (((), 0), (("-v",), 4), (("--records",), 4), (("--records", "hex"), 4)):
        tap("--read", capture, *options)
        assert capsys.readouterr().out.count("    request {") == count


def test_a_capture_of_a_capture_is_the_same(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "again.pcapng"
    assert tap("--read", capture, "--pcap", again) == DONE
    shown = capsys.readouterr().out
    assert tap("--read", again) == DONE
    assert capsys.readouterr().out == shown


def test_unreadable_or_unwritable_file_fails_with_reason(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = tmp_path / "none" / "x"
    for arguments, words in (
        (("--read", none), f"[Errno 2] No such file or directory: '{none}'"),
        (("--read", capture, "--json", none), f"No such file or directory: '{none}'"),
        (("--read", capture, "--pcap", none), f"No such file or directory: '{none}'"),
        (("--read", __file__), f"{__file__}: neither pcap nor pcapng"),
    ):
        assert tap(*arguments) == FAILED
        assert words in capsys.readouterr().err
    if os.path.exists("/dev/full"):
        assert tap("--read", capture, "--pcap", "/dev/full") == FAILED
        assert capsys.readouterr().err == "barnabas tap: [Errno 28] No space left on device\n"
        capture.write_bytes(written(*CONVERSATION * 50))
        assert tap("--read", capture, "--json", "/dev/full") == FAILED
        out, err = capsys.readouterr()
        output = "barnabas tap: nothing more is written to /dev/full: [Errno 28] No space left on device"
        assert (out.count("->"), err.splitlines()[0]) == (150, output)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a broker as HOST:PORT, or a capture with --read FILE"),
        (("nowhere",), "nowhere"),
        (("a:1", "--memory", "0"), "--memory is a number of megabytes, at least 1"),
        (("a:1", "--api", "Porduce"), "Kafka has no API 'Porduce'"),
        (("a:1", "--broker-ca", "/nonexistent"), "authority /nonexistent: no such file"),
        (("a:1", "--certificate", "/nonexistent"), "certificate and key /nonexistent: no such file"),
        (
            ("a:1", "--certificate", "/none", "--key", "/other"),
            "certificate and key /none, /other: no such file",
        ),
        (("a:1", "--broker-certificate", "/nonexistent"), "certificate and key /nonexistent: no such file"),
    ],
)
def test_options_that_cannot_be_meant_are_one_line(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tap(*arguments) == USAGE_ERROR
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("barnabas tap: ")) == ("", 1, True)
    assert words in err


def test_tls_options_make_contexts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def settings(*arguments: str) -> Any:
        return command.proxy_settings(command.parser().parse_args(["a:1", *arguments]))

    directory = str(tmp_path / "tls")
    authority, certificate, key = (f"{directory}/{name}" for name in ("ca.crt", "tap.crt", "tap.key"))
    created = settings("--tls", "--tls-directory", directory)
    assert f"clients trust its certificate by {authority}" in capsys.readouterr().err
    assert (created.client_tls.verify_mode.name, created.broker_tls) == ("CERT_NONE", None)
    values = settings("--certificate", certificate, "--key", key)
    assert (values.client_tls is not None, values.broker_tls) == (True, None)
    assert capsys.readouterr().err == ""
    asking = settings("--client-ca", authority, "--certificate", certificate, "--key", key)
    assert asking.client_tls.verify_mode.name == "CERT_REQUIRED"
    for arguments in (
        ("--broker-tls",),
        ("--broker-ca", authority),
        ("--broker-certificate", certificate, "--broker-key", key),
    ):
        result = settings(*arguments)
        assert result.client_tls is None
        assert (result.broker_tls.check_hostname, result.broker_tls.verify_mode.name) == (
            True,
            "CERT_REQUIRED",
        )
    assert not settings("--broker-tls", "--broker-any-name").broker_tls.check_hostname
    trusting = client_context(TlsFiles(authority=authority))
    assert len(trusting.get_ca_certs()) == 1
    assert trusting.verify_flags & 0x80000, "an authority that another one has signed will do"
    assert server_context(generated(Path(directory), ()), authority).verify_mode.name == "CERT_REQUIRED"
    with pytest.raises(TlsOptionError, match="authority /nonexistent: no such file"):
        server_context(TlsFiles(certificate, key), "/nonexistent")
    (tmp_path / "file").write_text("")
    with pytest.raises(TlsOptionError, match="--tls-directory"):
        generated(tmp_path / "file" / "x", ())


def test_only_the_terminal_is_written_unless_files_are_named(tmp_path: Path) -> None:
    for arguments, alone, reads in (
        ((), True, False),
        (("--summary",), False, False),
        (("--errors",), False, False),
        (("--json", str(tmp_path / "x")), False, False),
        (("--records",), True, True),
    ):
        options = options_of(arguments)
        with ExitStack() as files:
            views = Views(options, filter_of(options), files, is_live=True)
            assert views.only_terminal is (views.terminal if alone else None)
            assert views.terminal is not None
            assert views.reads_records is reads
            assert [name for name, _ in views.writers] == [
                *(
                    ["standard output"]
                    if "--json" not in arguments
                    else [str(tmp_path / "x"), "standard output"]
                )
            ]
    options = options_of(["--lines", "0"])
    with ExitStack() as files:
        assert Views(options, filter_of(options), files, is_live=True).terminal._lines_per_second is None  # type: ignore[union-attr]


# --- the proxy ------------------------------------------------------------------------------------------------------


async def test_proxy_serves_until_a_signal_and_writes_its_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        async for _ in stream:
            await stream.send_all(response(3, 12, 1, metadata()))

    path, events = tmp_path / "b.pcapng", tmp_path / "events"
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            lambda task_status: trio.serve_tcp(answer, 0, host="127.0.0.1", task_status=task_status)
        )
        broker = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        arguments = [
            broker,
            "--listen",
            "127.0.0.1:0",
            "--json",
            str(events),
            "--pcap",
            str(path),
            "--summary",
        ]
        options = command.parser().parse_args(arguments)
        codes: list[int] = []

        async def serve() -> None:
            codes.append(await command.serve(options, command.proxy_settings(options), filter_of(options)))

        nursery.start_soon(serve)
        output = ""
        with trio.fail_after(30):
            while "is ready" not in output:
                await trio.sleep(0.001)
                output += capsys.readouterr().err
        host, _, port = output.split("is ready: ")[1].split()[0].rpartition(":")
        assert output.endswith(f"for {broker}\n")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(request(3, 12, 1, MetadataRequest()))
            assert len(await stream.receive_some()) > 8
        with trio.fail_after(30):
            while '"closed"' not in events.read_text():
                await trio.sleep(0.001)
            os.kill(os.getpid(), signal.SIGTERM)
            while not codes:
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    out, err = capsys.readouterr()
    assert (codes, err) == ([DONE], "")
    assert [json.loads(line)["type"] for line in events.read_text().splitlines()] == [
        "opened",
        "exchange",
        "closed",
    ]
    assert ("Metadata v12" in out, "  1 request on 1 connection" in out) == (True, True)
    assert tap("--read", path, "--json", "-") == DONE
    again = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["type"] for row in again] == ["opened", "exchange", "closed"]
    assert again[2]["reason"] == "closed"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no such file")
@pytest.mark.parametrize("option", ["--json", "--pcap"])
async def test_output_that_cannot_be_written_makes_the_exit_code_tell(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = command.parser().parse_args(["127.0.0.1:1", "--listen", "127.0.0.1:0", option, "/dev/full"])
    settings = command.proxy_settings(options)
    if option == "--pcap":  # the beginning of the file fails already, before anything is served
        with pytest.raises(OSError, match="No space left"):
            await command.serve(options, settings, filter_of(options))
        return
    async with trio.open_nursery() as nursery:
        codes: list[int] = []

        async def serve() -> None:
            codes.append(await command.serve(options, settings, filter_of(options)))

        nursery.start_soon(serve)
        output = ""
        with trio.fail_after(30):
            while "is ready" not in output:
                await trio.sleep(0.001)
                output += capsys.readouterr().err
            port = int(output.split("is ready: ")[1].split()[0].rpartition(":")[2])
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.receive_some()
            output = ""
            while "nothing more is written" not in output:
                await trio.sleep(0.001)
                output += capsys.readouterr().err
            os.kill(os.getpid(), signal.SIGTERM)
            while not codes:
                await trio.sleep(0.001)
    assert codes == [FAILED]
    assert "barnabas tap: nothing more is written to /dev/full: [Errno 28]" in output


def test_a_port_that_is_taken_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert tap("a:1", "--listen", f"127.0.0.1:{taken.getsockname()[1]}") == FAILED
    assert capsys.readouterr().err.startswith("barnabas tap: ")
