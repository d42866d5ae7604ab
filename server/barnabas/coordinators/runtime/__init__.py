"""Running the pure machines: appends their decisions, releases their replies, keeps their timers."""
