#!/bin/bash
# jsonschema 4.26.0 (Python): in draft 2019-09 a subschema of `additionalProperties` marks the wrong properties as evaluated.
# Seen: the names of its own keywords count, in place of the names of the properties that it was applied to: with `unevaluatedProperties: false` beside it, the valid document {"a": 1} is refused, and {"type": 1} is taken, as the subschema
# has a keyword `type`.
# Beside it: the validator of draft 2020-12, whose rule is the same here, takes both.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install jsonschema==4.26.0

"$dir/venv/bin/python" - >"$dir/seen" <<'PY'
from jsonschema import Draft201909Validator, Draft202012Validator

schema = {"allOf": [{"additionalProperties": {"type": "integer"}}], "unevaluatedProperties": False}
for validator in (Draft201909Validator, Draft202012Validator):
    for document in ({"a": 1}, {"type": 1}):
        print(validator.__name__, document, validator(schema).is_valid(document))
PY

diff "$dir/seen" - <<'SEEN'
Draft201909Validator {'a': 1} False
Draft201909Validator {'type': 1} True
Draft202012Validator {'a': 1} True
Draft202012Validator {'type': 1} True
SEEN
