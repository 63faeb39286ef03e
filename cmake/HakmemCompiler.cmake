# What every HAKMEM source is compiled with, as one interface target: language, warnings, include paths.
include(CheckCCompilerFlag)
find_package(Threads REQUIRED)

set(HAKMEM_C_WARNINGS
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wundef -Wvla)
set(HAKMEM_CXX_WARNINGS -Wall -Wextra -Wshadow -Wpointer-arith -Wundef -Wvla)
if(HAKMEM_WERROR)
  list(APPEND HAKMEM_C_WARNINGS -Werror)
  list(APPEND HAKMEM_CXX_WARNINGS -Werror)
endif()

add_library(hakmem_warnings INTERFACE)
target_compile_options(hakmem_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:C>:${HAKMEM_C_WARNINGS}>"
  "$<$<COMPILE_LANGUAGE:CXX>:${HAKMEM_CXX_WARNINGS}>")

add_library(hakmem_source INTERFACE)
target_compile_features(hakmem_source INTERFACE c_std_17)
target_include_directories(hakmem_source INTERFACE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
target_compile_definitions(hakmem_source INTERFACE _GNU_SOURCE "HAK_VERSION_STRING=\"${PROJECT_VERSION}\"")
# An allocator must not have its own loops and calls turned into calls of malloc or calloc.
target_compile_options(hakmem_source INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-std=gnu17>
  -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free)
target_link_libraries(hakmem_source INTERFACE hakmem_warnings Threads::Threads)

# hakmem_add_flags_if_known(<target> <scope> <flag>...): options that only some compilers or processors have.
function(hakmem_add_flags_if_known target scope)
  set(CMAKE_REQUIRED_FLAGS -Werror) # clang takes some that it does not use, with a warning
  foreach(flag IN LISTS ARGN)
    string(MAKE_C_IDENTIFIER "HAKMEM_HAS${flag}" known)
    check_c_compiler_flag("${flag}" ${known})
    if(${known})
      target_compile_options(${target} ${scope} "${flag}")
    endif()
  endforeach()
endfunction()
