"""Reports of a run's findings: for the terminal, as JSON, as JUnit XML and as one HTML page.

The rule: a failure shows its rule, its source, the differences, and each request and answer decoded and in hex.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from barnabas.tools.conformance.fixture import Fixture
from barnabas.tools.conformance.running import Result, Verdict, api_of, counts
from barnabas.tools.inspection.messages import as_json as message_as_json
from barnabas.tools.probing.exchanges import Exchange
from barnabas.wire import registry
from barnabas.wire.errors import DecodeError
from barnabas.wire.headers import parse_request_header

HEX_BYTES_MAX = 2048
EXCHANGES_MAX = 20
LINE_BYTES = 16


def hex_dump(data: bytes) -> list[str]:
    """Return bytes in lines of 16, with their text beside them."""
    lines = []
    for at in range(0, min(len(data), HEX_BYTES_MAX), LINE_BYTES):
        part = data[at : at + LINE_BYTES]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<47}  {text}")
    if len(data) > HEX_BYTES_MAX:
        lines.append(f"... {len(data) - HEX_BYTES_MAX} bytes more")
    return lines


def decoded(message: Any) -> str:
    """Return a message as JSON; empty for none."""
    return "" if message is None else json.dumps(message_as_json(message), indent=1, ensure_ascii=False)


def request_of(exchange: Exchange) -> Any:
    """Return the request of an exchange; None if the sent bytes are no valid request."""
    if exchange.request is not None:
        return exchange.request
    try:
        header = parse_request_header(exchange.sent, 4)
        codec = registry.request_codec(header.api_key)
        return codec.decode_whole(exchange.sent, header.api_version, header.body_position)
    except (DecodeError, KeyError, ValueError):
        return None


def exchange_as_json(exchange: Exchange) -> dict[str, Any]:
    """Return request and answer, decoded and in hex."""
    request = request_of(exchange)
    return {
        "api": api_of(exchange),
        "request": None if request is None else message_as_json(request),
        "request_hex": exchange.sent[:HEX_BYTES_MAX].hex(),
        "answer": None if exchange.answer is None else message_as_json(exchange.answer),
        "answer_hex": None if exchange.answered is None else exchange.answered[:HEX_BYTES_MAX].hex(),
        "outcome": exchange.outcome,
    }


def lines_of_failure(result: Result) -> Iterator[str]:
    """Yield the description of a failed case."""
    yield f"FAILED {result.case.id}: {result.reason}"
    yield f"  rule: {result.case.rule} ({result.case.source})"
    for exchange in result.exchanges[-EXCHANGES_MAX:]:
        yield f"  {api_of(exchange)}"
        request = request_of(exchange)
        yield from _indented("request", decoded(request) or "(cannot be decoded)", exchange.sent)
        if exchange.answered is None:
            yield f"    answer: {exchange.outcome or 'none'}"
        else:
            yield from _indented("answer", decoded(exchange.answer) or exchange.outcome, exchange.answered)


def _indented(what: str, text: str, data: bytes) -> Iterator[str]:
    yield f"    {what}: {' '.join(text.split())}"
    for line in hex_dump(data):
        yield f"      {line}"


def summary(results: Sequence[Result]) -> str:
    """Return the counts in one line."""
    of = {verdict: sum(result.verdict is verdict for result in results) for verdict in Verdict}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in of.items())


def as_json(fixture: Fixture, results: Sequence[Result], *, seed: int) -> dict[str, Any]:
    """Return the run as JSON."""
    return {
        "address": str(fixture.target.endpoint),
        "release": str(fixture.release),
        "seed": seed,
        "summary": {
            verdict.value: sum(result.verdict is verdict for result in results) for verdict in Verdict
        },
        "left": fixture.leftovers,
        "cases": [
            {
                "id": result.case.id,
                "rule": result.case.rule,
                "source": result.case.source,
                "verdict": result.verdict.value,
                "reason": result.reason,
                "seconds": round(result.seconds, 4),
                "exchanges": [exchange_as_json(each) for each in result.exchanges[-EXCHANGES_MAX:]],
            }
            for result in results
        ],
    }


def as_junit(fixture: Fixture, results: Sequence[Result]) -> str:
    """Return the run as JUnit XML: a test suite for each API and each behaviour."""
    root = ElementTree.Element("testsuites", name=f"barnabas conform {fixture.target.endpoint}")
    suites: dict[str, ElementTree.Element] = {}
    for group, row in counts(results).items():
        suites[group] = ElementTree.SubElement(
            root,
            "testsuite",
            name=group,
            tests=str(sum(row.values())),
            failures=str(row[Verdict.FAILED]),
            skipped=str(row[Verdict.NOT_APPLICABLE]),
            errors="0",
        )
    for result in results:
        name = result.case.id.partition("/")[2]
        case = ElementTree.SubElement(
            suites[result.case.group],
            "testcase",
            classname=result.case.group,
            name=name,
            time=f"{result.seconds:.4f}",
        )
        if result.verdict is Verdict.FAILED:
            failure = ElementTree.SubElement(case, "failure", message=_xml_text(result.reason))
            failure.text = _xml_text("\n".join(lines_of_failure(result)))
        elif result.verdict is Verdict.NOT_APPLICABLE:
            ElementTree.SubElement(case, "skipped", message=_xml_text(result.reason))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _xml_text(text: str) -> str:
    """Return a text without the characters that XML does not allow."""
    return "".join(character if character in "\t\n" or character >= " " else "?" for character in text)


def as_html(fixture: Fixture, results: Sequence[Result], *, seed: int) -> str:
    """Return the run as one page."""
    from barnabas.tools.probing.pages import render

    failures = [
        {
            "result": result,
            "exchanges": [
                {
                    "api": api_of(each),
                    "request": decoded(request_of(each)),
                    "request_hex": "\n".join(hex_dump(each.sent)),
                    "answer": decoded(each.answer),
                    "answer_hex": "\n".join(hex_dump(each.answered or b"")),
                    "outcome": each.outcome,
                }
                for each in result.exchanges[-EXCHANGES_MAX:]
            ],
        }
        for result in results
        if result.verdict is Verdict.FAILED
    ]
    groups = [
        (name, {verdict.name: count for verdict, count in row.items()})
        for name, row in counts(results).items()
    ]
    reasons: dict[str, int] = {}
    for result in results:
        if result.verdict is Verdict.NOT_APPLICABLE:
            reasons[result.reason] = reasons.get(result.reason, 0) + 1
    values = {
        "fixture": fixture,
        "summary": summary(results),
        "failures": failures,
        "groups": groups,
        "seed": seed,
        "reasons": sorted(reasons.items()),
    }
    return render("barnabas.tools.conformance", "report.html.j2", values)
