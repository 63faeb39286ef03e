"""The allocator seen from outside: a running process, a core dump, a snapshot."""
