"""`barnabas probe`: determines the APIs that a broker really serves, its speed, and the consequences for clients.

The rule: a probe only reads. A request that could change something is sent in a form that must be refused, or with
`--write`, or not at all.
"""
