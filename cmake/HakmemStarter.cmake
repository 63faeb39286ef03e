# The starter `hakmem`: one static file without a C library on the processors whose system calls base/syscall.h makes itself, else an
# ordinary program.
file(GLOB hakmem_starter_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/starter/*.c")
add_executable(hakmem_starter ${hakmem_starter_sources} "${PROJECT_SOURCE_DIR}/src/diag/format.c")
target_link_libraries(hakmem_starter PRIVATE hakmem_source)
set_target_properties(hakmem_starter PROPERTIES OUTPUT_NAME hakmem INTERPROCEDURAL_OPTIMIZATION OFF
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")   # Ninja would take a file of this name beside the library for that
target_compile_definitions(hakmem_starter PRIVATE NDEBUG "HAK_MULTIARCH=\"${CMAKE_LIBRARY_ARCHITECTURE}\"")
target_compile_options(hakmem_starter PRIVATE -Os -fvisibility=hidden -ffunction-sections -fdata-sections)
target_link_options(hakmem_starter PRIVATE "LINKER:--gc-sections")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|aarch64|riscv64)$")
  target_compile_definitions(hakmem_starter PRIVATE HAK_FREESTANDING=1)
  target_compile_options(hakmem_starter PRIVATE -ffreestanding -fno-pie -fno-stack-protector -fno-asynchronous-unwind-tables
    -U_FORTIFY_SOURCE)
  hakmem_add_flags_if_known(hakmem_starter PRIVATE -fcf-protection=none)
  target_link_options(hakmem_starter PRIVATE -static -nostdlib -no-pie "LINKER:--build-id=none,-z,noexecstack")
endif()
install(TARGETS hakmem_starter RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
