"""Parts of `Admin`: what can be asked of a cluster beside sending and reading records, by subject.

The rule: a call for several things returns an outcome for each, an error for those that failed; it raises only what
concerns them all.
"""
