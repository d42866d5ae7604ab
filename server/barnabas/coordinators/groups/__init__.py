"""Groups and their offsets: pure state machines, and the group coordinator (`coordinator`) that runs them."""
