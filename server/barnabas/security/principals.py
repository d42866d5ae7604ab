"""Names of principals: of certificates as Java prints them (RFC 2253), and by rules (KIP-371, auth_to_local). Pure.

The rule: a name equals, character by character, that which Apache Kafka derives from the same certificate or Kerberos
principal, since ACLs contain it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barnabas.patterns import PatternError
from barnabas.patterns.java import java_pattern

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attribute types that RFC 2253 has names for; others are written as numbers, their values in hexadecimal."""

_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_ENCODINGS = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_ESCAPED = frozenset(',=+<>#;"\\')


_CONTROL = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories of invisible characters: control, surrogates, line and paragraph separators."""


class NameRuleError(ValueError):
    """A rule that is malformed, or a name that no rule applies to."""


def has_control_character(name: str) -> bool:
    """Return whether a name would look like another one, or like several lines, in ACLs, quotas and logs."""
    return not name.isprintable() and any(unicodedata.category(char) in _CONTROL for char in name)


# --- certificates -----------------------------------------------------------------------------------------------------


def subject_of(certificate: bytes) -> str:
    """Return the distinguished name of a certificate's (DER) subject, as Java's X500Principal.getName prints it.

    Raises ValueError for an invalid certificate.
    """
    try:
        whole = _content(certificate, 0)
        fields = list(_items(_content(whole, 0)))
        if fields[0][0] == _VERSION:
            del fields[0]
        # serial number, signature, issuer, validity, subject
        return _name(fields[4][1])
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("the certificate cannot be read") from error


def _items(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (tag, content, whole) of each DER value in `data`."""
    position = 0
    while position < len(data):
        start, tag, length = position, data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise IndexError
        yield tag, data[position : position + length], data[start : position + length]
        position += length


def _content(data: bytes, index: int) -> bytes:
    return list(_items(data))[index][1]


def _name(rdns: bytes) -> str:
    parts = []
    for tag, rdn, _ in _items(rdns):
        if tag != _SET:
            raise IndexError
        parts.append("+".join(_attribute(content) for _, content, _ in _items(rdn)))
    return ",".join(reversed(parts))


def _attribute(content: bytes) -> str:
    (tag, oid, _), (value_tag, value, whole) = _items(content)
    if tag != _OID:
        raise IndexError
    number = _dotted(oid)
    keyword = _KEYWORDS.get(number)
    encoding = _ENCODINGS.get(value_tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode(encoding))}"


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(value: str) -> str:
    text = "".join("\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in value)
    inner = text.strip(" \r")
    lead = text[: len(text) - len(text.lstrip(" \r"))]
    trail = text[len(lead) + len(inner) :]
    return "".join("\\" + char for char in lead) + inner + "".join("\\" + char for char in trail)


# --- ssl.principal.mapping.rules (KIP-371) ----------------------------------------------------------------------------

Namer = Callable[[str], str | None]

_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")


class CertificateNames:
    """Names by the rules of `ssl.principal.mapping.rules`: the first that fits the whole distinguished name counts."""

    def __init__(self, text: str) -> None:
        """Parse rules. Raises NameRuleError."""
        self._rules = list(_certificate_rules(text))

    def name_of(self, distinguished_name: str) -> str:
        """Return the name for a distinguished name. Raises NameRuleError where no rule applies."""
        for rule in self._rules:
            name = rule(distinguished_name)
            if name is not None and has_control_character(name):
                raise NameRuleError(f"the name {name!r} has a control character")
            if name is not None:
                return name
        raise NameRuleError(f"no rule of ssl.principal.mapping.rules applies to {distinguished_name!r}")


def _certificate_rules(text: str) -> Iterator[Namer]:
    for rule in _split_rules(text):
        if rule == "DEFAULT":
            yield lambda name: name
            continue
        parsed = _RULE.fullmatch(rule)
        if parsed is None:
            raise NameRuleError(
                f"{rule!r} is not of the form RULE:PATTERN/REPLACEMENT/ with L or U after it, or DEFAULT"
            )
        yield _certificate_rule(_compiled(parsed[1]), parsed[2], parsed[3])


def _split_rules(text: str) -> Iterator[str]:
    """Yield the rules, which are separated by commas, except for commas within a pattern or a replacement."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        rule = _RULE.match(text, at)
        end = text.find(",", at if rule is None else rule.end())
        end = len(text) if end < 0 else end
        if held := text[at:end].strip():
            yield held
        at = end + 1


def _certificate_rule(pattern: Any, replacement: str, case: str) -> Namer:
    def rule(name: str) -> str | None:
        if pattern.fullmatch(name) is None:
            return None
        return _in_case(pattern.sub(lambda match: _expanded(replacement, match, pattern.groups), name), case)

    return rule


def _compiled(pattern: str) -> Any:
    try:
        return java_pattern(pattern)
    except PatternError as error:
        raise NameRuleError(f"{error.shown} is not a regular expression: {error.reason}") from None


def _expanded(replacement: str, match: Any, groups: int) -> str:
    """Expand a replacement of Java's form: $1 is the first group; the longest run of digits that is a group's number
    counts.

    A number that is no group's stays as it is.
    """

    def expand(item: re.Match[str]) -> str:
        if item[1]:
            return item[1]
        digits = item[2]
        while len(digits) > 1 and int(digits) > groups:
            digits = digits[:-1]
        if int(digits) > groups:
            return item[0]
        return (match[int(digits)] or "") + item[2][len(digits) :]

    return re.sub(r"\\(.)|\$(\d+)", expand, replacement)


def _in_case(name: str, case: str) -> str:
    return name.lower() if case == "L" else name.upper() if case == "U" else name


# --- sasl.kerberos.principal.to.local.rules ---------------------------------------------------------------------------

_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_KERBEROS_RULE = re.compile(r"RULE:\[([0-9]+):([^\]]*)](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?")
_NOT_SIMPLE = re.compile("[/@]")


class KerberosNames:
    """Names by the rules of `sasl.kerberos.principal.to.local.rules`; the first that applies counts."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Parse rules. Raises NameRuleError."""
        self._default_realm = default_realm
        self._rules: list[Callable[[list[str]], str | None]] = [self._rule(text) for text in rules]

    def name_of(self, principal: str) -> str:
        """Return the name for a principal like `alice/host@REALM`. Raises NameRuleError where no rule applies.

        A principal of more parts than these three has no name, as with Kafka.
        """
        if "@" not in principal:
            return principal
        parsed = _PRINCIPAL.fullmatch(principal)
        if parsed is None:
            raise NameRuleError(
                f"the principal {principal!r} is not of the form NAME@REALM or NAME/HOST@REALM"
            )
        first, host, realm = parsed.groups()
        fields = [realm, first] if host is None else [realm, first, host]
        for rule in self._rules:
            name = rule(fields)
            if name is not None:
                return name
        raise NameRuleError(f"no rule of sasl.kerberos.principal.to.local.rules applies to {principal!r}")

    def _rule(self, text: str) -> Callable[[list[str]], str | None]:
        if text == "DEFAULT":
            return lambda fields: fields[1] if fields[0] == self._default_realm else None
        parsed = _KERBEROS_RULE.fullmatch(text)
        if parsed is None:
            raise NameRuleError(
                f"{text!r} is not of the form RULE:[n:format](pattern)s/from/to/g/L, or DEFAULT"
            )
        return _kerberos_rule(parsed)


def _kerberos_rule(parsed: re.Match[str]) -> Callable[[list[str]], str | None]:
    count, form, case = int(parsed[1]), parsed[2], parsed[7] or ""
    pattern = _compiled(parsed[3]) if parsed[3] is not None else None
    source = _compiled(parsed[4]) if parsed[4] is not None else None
    target, times = parsed[5] or "", 0 if parsed[6] else 1
    numbers = [int(digit) for digit in re.findall(r"(?<!\\)\$(\d)", target)]
    has_all_groups = source is None or all(number <= source.groups for number in numbers)

    def rule(fields: list[str]) -> str | None:
        if len(fields) - 1 != count:
            return None
        base = _filled(form, fields)
        if pattern is not None and pattern.fullmatch(base) is None:
            return None
        if not has_all_groups:
            raise NameRuleError(f"rule {parsed[0]}: {target!r} has the number of no group")
        result = (
            base
            if source is None
            else source.sub(lambda match: _expanded(target, match, source.groups), base, times)
        )
        if _NOT_SIMPLE.search(result):
            raise NameRuleError(f"{result!r} is no simple name, after rule {parsed[0]}")
        return _in_case(result, case)

    return rule


def _filled(form: str, fields: list[str]) -> str:
    def fill(match: re.Match[str]) -> str:
        number = int(match[1] or -1)
        if not 0 <= number < len(fields):
            raise NameRuleError(f"{form!r} has a number outside of 0 to {len(fields) - 1}")
        return fields[number]

    return re.sub(r"\$(\d*)", fill, form)
