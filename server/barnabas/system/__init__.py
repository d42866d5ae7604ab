"""Calls that Linux and macOS have under other names, with other rules, or not at all.

The rule: which way is taken is decided by what the modules `os`, `select`, `fcntl` and `socket` have when this is imported,
not at each call, and nothing above can tell. No other package names what only one of the two systems has, but
`tools/tap/splicing.py`, which is one such call as a whole and says whether it can be used.
"""
