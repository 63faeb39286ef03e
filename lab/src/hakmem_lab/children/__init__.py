"""Child processes of a command: they get its signals, and end when it ends."""
