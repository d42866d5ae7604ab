"""Groups and their offsets: pure state machines, and in `coordinator` the group coordinator that runs them."""
