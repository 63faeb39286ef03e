# A build for another C library, another version of glibc or another processor, by the compilers that tools/cross.py brings.
# HAKMEM_TARGET is zig's name of the system: x86_64-linux-musl. What runs on this machine as it is does not count as cross-compiled.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HAKMEM_TARGET)
set(hakmem_compilers "${CMAKE_CURRENT_LIST_DIR}/../out/cross/${HAKMEM_TARGET}")
foreach(tool IN ITEMS C_COMPILER:cc CXX_COMPILER:c++ AR:ar RANLIB:ranlib)
  string(REPLACE ":" ";" tool "${tool}")
  list(GET tool 0 name)
  list(GET tool 1 file)
  set(CMAKE_${name} "${hakmem_compilers}/${file}")
endforeach()
if(HAKMEM_TARGET MATCHES "musl")
  # Zig's default for musl is static. Its stand-in for the C library does not say which names of data are one variable, so a
  # program at a fixed address would get a copy of `environ` that the C library does not use.
  set(CMAKE_EXE_LINKER_FLAGS_INIT "-dynamic -pie")
  set(CMAKE_C_FLAGS_INIT -fPIC)
  set(CMAKE_CXX_FLAGS_INIT -fPIC)
endif()
if(HAKMEM_TARGET MATCHES "^riscv64")
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR riscv64)
  set(CMAKE_CROSSCOMPILING_EMULATOR qemu-riscv64 -L /usr/riscv64-linux-gnu)
endif()
set(CMOCKA_INCLUDE_DIR "${hakmem_compilers}/include" CACHE PATH "")
set(CMOCKA_LIBRARY "${hakmem_compilers}/lib/libcmocka.a" CACHE FILEPATH "")
