"""Numbers of src/profile/profile.h, written by tools/gen_bindings.py."""

FRAMES = 64  # of a stack; deeper ones lack their outermost functions
LIFETIMES = 12  # buckets
