"""What is known of a request while it is served: who asks, what it may hold, what it shares with others."""
