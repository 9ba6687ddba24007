"""A conversation: its commands and events, its state, and the actor that owns it."""
