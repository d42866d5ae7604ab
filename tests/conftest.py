"""What all tests share."""

import os

from hypothesis import settings

# A deadline per example is a timed assert: it fails on a busy machine, not on a bug.
settings.register_profile("barnabas", deadline=None)
# A night's finding must be found again by day: the blob that repeats it is printed.
settings.register_profile("nightly", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "barnabas"))
