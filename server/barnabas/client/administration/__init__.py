"""Parts of `Admin`: requests to a cluster other than producing and fetching records, by subject.

The rule: a call for several resources returns an outcome for each, an error for those that failed; it raises only errors
that affect all of them.
"""
