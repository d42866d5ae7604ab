"""Running the pure machines: appending what they decide, releasing their answers, keeping their timers."""
