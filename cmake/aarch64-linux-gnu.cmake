# A build for 64-bit Arm Linux by a cross compiler; what it builds runs under qemu's user emulation.
# QEMU_PAGESIZE in the environment of a test is the page size that qemu shows to it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
