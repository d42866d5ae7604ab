"""What all tests share."""

from hypothesis import settings

# A deadline per example is a timed assert: it fails on a busy machine, not on a bug.
settings.register_profile("barnabas", deadline=None)
settings.load_profile("barnabas")
