"""What is run or looked at: libraries, allocators, their options, programs, processes."""
