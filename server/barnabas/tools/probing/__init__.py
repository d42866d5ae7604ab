"""`barnabas probe`: what a broker really serves, how fast, and what that means for clients.

The rule: a probe reads. What could change something is sent so that it must be refused, or with `--write`, or not at all.
"""
