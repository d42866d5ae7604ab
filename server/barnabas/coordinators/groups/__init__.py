"""Consumer groups and their offsets: pure state machines. Time comes in, decisions go out."""
