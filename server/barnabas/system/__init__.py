"""Calls that Linux and macOS have under other names, with other rules, or not at all.

The rule: the variant is selected by the contents of the modules `os`, `select`, `fcntl` and `socket` at import time,
not at each call, and callers need not know it. No other package uses a name that only one of the two systems has, except
`tools/tap/splicing.py`, which is one such call as a whole and reports whether it can be used.
"""
