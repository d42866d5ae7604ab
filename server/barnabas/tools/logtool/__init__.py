"""`barnabas log`: show, check and repair log dirs, without a broker.

The rule: looking changes nothing, not even a lock file; mending is planned whole before the first byte is changed.
"""
