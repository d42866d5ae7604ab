#!/bin/bash
# jsonschema 4.26.0 (Python): `pattern` is read in Python's dialect, while JSON Schema has that of ECMA-262.
# Seen: `^[a-z]+$` takes a text that ends with a line feed, `^\d+$` takes digits of other scripts, and `\p{L}`, which validators of
# other languages take, is an error of Python's `re`. One schema judges one document in two ways, by the language of who asks.
# Judge: the regular expressions of Node.js (any), with the flag `u` as JSON Schema recommends.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install jsonschema==4.26.0
cat >"$dir/cases.json" <<'JSON'
[["^[a-z]+$", "abc\n"], ["^\\d+$", "\u0661\u0662"], ["^\\w+$", "\u00e4"], ["^\\p{L}+$", "abc"], ["^[a-z]+$", "abc"]]
JSON

"$dir/venv/bin/python" - "$dir/cases.json" >"$dir/python" <<'PY'
import json
import re
import sys

from jsonschema import Draft202012Validator

for pattern, text in json.load(open(sys.argv[1])):
    try:
        print(pattern, Draft202012Validator({"pattern": pattern}).is_valid(text))
    except re.error as error:
        print(pattern, error)
PY
node -e 'for (const [pattern, text] of require(process.argv[1])) console.log(new RegExp(pattern, "u").test(text))' \
    "$dir/cases.json" >"$dir/node"

paste -d '|' "$dir/python" "$dir/node" | diff - <(
    cat <<'SEEN'
^[a-z]+$ True|false
^\d+$ True|false
^\w+$ True|false
^\p{L}+$ bad escape \p at position 1|true
^[a-z]+$ True|true
SEEN
)
