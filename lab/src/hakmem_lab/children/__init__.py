"""Programs as children of a command: signals passed on, and ended whenever the command ends."""
