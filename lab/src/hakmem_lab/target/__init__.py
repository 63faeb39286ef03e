"""The things that commands work on: the library and its options, other allocators, programs, processes."""
