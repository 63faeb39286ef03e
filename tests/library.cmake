# Tests of the library as programs load it: preloaded, linked shared, linked static.
include(CheckLinkerFlag)
include(CheckSymbolExists)
check_symbol_exists(__GLIBC__ stdlib.h HAKMEM_LIBC_IS_GLIBC)
check_linker_flag(C "LINKER:--export-dynamic-symbol=hak_conf" HAKMEM_HAS_export_dynamic_symbol)

# What programs of the flavour preload are linked with in place of the library.
add_library(hakmem_test_names SHARED "${CMAKE_CURRENT_SOURCE_DIR}/support/names.c")
set_target_properties(hakmem_test_names PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")

# hakmem_add_libc(<target> [<names>]): what the program calls that only glibc has (support/libc.h); with the stand-ins for the library
# where it is preloaded.
function(hakmem_add_libc target)
  if(NOT HAKMEM_LIBC_IS_GLIBC)
    target_compile_options(${target} PRIVATE "SHELL:-include ${PROJECT_SOURCE_DIR}/tests/support/libc.h")
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include")
    target_link_libraries(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# How the library is preloaded. Where the C library is not this machine's, programs of this machine that a test starts must not load it:
# only glibc's loader replaces $LIB, and then finds nothing.
set(hakmem_preload "$<TARGET_FILE:hakmem>")
set(hakmem_preload_malloc_only "$<TARGET_FILE:hakmem_malloc_only>")
set(hakmem_preload_by "LD_PRELOAD=")
set(hakmem_library_environment)
if(CMAKE_CROSSCOMPILING_EMULATOR)
  find_program(HAKMEM_EMULATOR "${CMAKE_CROSSCOMPILING_EMULATOR}" REQUIRED)
  set(hakmem_preload_by "QEMU_SET_ENV=LD_PRELOAD=")   # the emulator itself is a program of this machine
  set(hakmem_library_environment "HAK_TEST_EMULATOR=${HAKMEM_EMULATOR}" "HAK_TEST_EMULATED=${limit_factor}")
  add_library(hakmem_test_emulated OBJECT "${CMAKE_CURRENT_SOURCE_DIR}/support/qemu_programs.c")
  foreach(name IN ITEMS libstdc++.so.6 libgcc_s.so.1)   # lie beside the cross compiler
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=${name} OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/tests/runtime")
    file(CREATE_LINK "${runtime}" "${CMAKE_BINARY_DIR}/tests/runtime/${name}" SYMBOLIC)
  endforeach()
  list(APPEND CMAKE_BUILD_RPATH "${CMAKE_BINARY_DIR}/tests/runtime")
endif()
if(NOT HAKMEM_LIBC_IS_GLIBC)
  file(CREATE_LINK "${CMAKE_BINARY_DIR}" "${CMAKE_BINARY_DIR}/\$LIB" SYMBOLIC)
  set(hakmem_preload "${CMAKE_BINARY_DIR}/\$LIB/libhakmem.so")
  set(hakmem_preload_malloc_only "${CMAKE_BINARY_DIR}/\$LIB/libhakmem-malloc-only.so")
endif()

# hakmem_add_override(<source> <flavour>): the same program once per way of linking.
function(hakmem_add_override source flavour)
  get_filename_component(stem "${source}" NAME_WE)
  set(target "override_${stem}_${flavour}")
  add_executable(${target} "${source}")
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME "${stem}_${flavour}" RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/override")
  target_compile_features(${target} PRIVATE c_std_17 cxx_std_17)
  # The calls under test must stay calls, and some of them are wrong on purpose.
  target_compile_options(${target} PRIVATE -fno-builtin $<$<C_COMPILER_ID:GNU>:-Wno-alloc-size-larger-than>)
  target_link_libraries(${target} PRIVATE hakmem_warnings)
  hakmem_add_libc(${target})
  file(STRINGS "${source}" uses_cmocka REGEX "#include <cmocka\\.h>")
  if(uses_cmocka)
    target_link_libraries(${target} PRIVATE hakmem_cmocka)
  endif()
  if(flavour STREQUAL "preload")
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include")
    target_link_options(${target} PRIVATE
      $<IF:$<BOOL:${HAKMEM_HAS_export_dynamic_symbol}>,LINKER:--export-dynamic-symbol=hak_conf,-rdynamic>)
    target_link_libraries(${target} PRIVATE hakmem_test_names Threads::Threads)
  elseif(flavour STREQUAL "shared")
    target_link_libraries(${target} PRIVATE hakmem)
  else()
    target_link_libraries(${target} PRIVATE hakmem_static)
  endif()
  file(STRINGS "${source}" uses_regions REGEX "#include <hakmem_region\\.h>")
  if(uses_regions AND flavour MATCHES "^(preload|shared)$")
    target_link_libraries(${target} PRIVATE hakmem_region)
  elseif(uses_regions)
    target_link_libraries(${target} PRIVATE hakmem_region_static)
  endif()
  if(flavour STREQUAL "static")
    target_link_options(${target} PRIVATE -static)
  endif()
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  if(TARGET hakmem_test_emulated)
    target_link_libraries(${target} PRIVATE hakmem_test_emulated)
    target_link_options(${target} PRIVATE "LINKER:--wrap=alarm,--wrap=execve,--wrap=execv,--wrap=execl,--wrap=posix_spawn")
  endif()
  set(environment ${hakmem_library_environment})
  if(flavour STREQUAL "preload")
    set(environment ${environment} "${hakmem_preload_by}${hakmem_preload}")
  endif()
  set(prefixes "/")
  list(GET TRAIT_FLAVOURS 0 first)
  list(GET TRAIT_FLAVOURS -1 last)
  if(TARGET hakmem_test_emulated)   # an emulator takes its time
    set(first preload)
    set(last preload)
  endif()
  if(NOT TRAIT_ORDINARY AND flavour MATCHES "^(${first}|${last})$")
    list(APPEND prefixes hardened.)
  endif()
  if(flavour STREQUAL "preload" AND NOT TRAIT_INTERPOSED AND NOT TARGET hakmem_test_emulated)
    list(APPEND prefixes malloc_only.)
  endif()
  foreach(prefix IN LISTS prefixes)
    string(REPLACE "/" "" test "${prefix}override.${stem}.${flavour}")
    hakmem_register("${test}" override "${source}" COMMAND ${target})
    if(NOT TEST "${test}")
      continue()
    endif()
    set_property(TEST "${test}" PROPERTY ENVIRONMENT ${environment})
    if(prefix STREQUAL "hardened.")
      set_property(TEST "${test}" APPEND PROPERTY ENVIRONMENT HAKMEM_HARDEN=1)
    elseif(prefix STREQUAL "malloc_only.")
      set_property(TEST "${test}" PROPERTY ENVIRONMENT ${hakmem_library_environment} "${hakmem_preload_by}${hakmem_preload_malloc_only}")
    endif()
  endforeach()
  if(flavour STREQUAL "shared" AND TEST "override.${stem}.shared")
    hakmem_in_list(brief "override.${stem}.shared" ${target})
  endif()
endfunction()

hakmem_glob(sources "override/test_*.c" "override/test_*.cpp")
foreach(source IN LISTS sources)
  hakmem_read_traits("${source}")
  if(TRAIT_GLIBC AND NOT HAKMEM_LIBC_IS_GLIBC)
    continue()
  endif()
  file(STRINGS "${source}" uses_cmocka REGEX "#include <cmocka\\.h>")
  if(uses_cmocka)  # exists as a shared library only
    list(REMOVE_ITEM TRAIT_FLAVOURS static)
  endif()
  foreach(flavour IN LISTS TRAIT_FLAVOURS)
    hakmem_add_override("${source}" ${flavour})
  endforeach()
endforeach()

# One mistake per program. No warnings and no optimisation: the compiler must neither object nor be clever.
hakmem_glob(sources "misuse/*.c" "misuse/*.cpp")
foreach(source IN LISTS sources)
  hakmem_read_traits("${source}")
  if(TRAIT_GLIBC AND NOT HAKMEM_LIBC_IS_GLIBC)
    continue()
  endif()
  get_filename_component(stem "${source}" NAME_WE)
  set(target "misuse_${stem}")
  add_executable(${target} "${source}")
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME "${stem}" RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/misuse")
  target_compile_options(${target} PRIVATE -w -O0 -fno-builtin)
  file(STRINGS "${source}" build LIMIT_COUNT 20 REGEX "^// build: ")
  if(build)
    string(REGEX REPLACE "^// build: " "" build "${build}")
    separate_arguments(build)
    target_compile_options(${target} PRIVATE ${build})
    target_link_options(${target} PRIVATE ${build})
  endif()
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include")
  hakmem_add_libc(${target} hakmem_test_names)
  if(stem MATCHES "^heap_")   # these call what only the library has
    target_link_libraries(${target} PRIVATE hakmem_test_names)
  endif()
  if(stem MATCHES "^heap_region_")
    target_link_libraries(${target} PRIVATE hakmem_region)
  endif()
  hakmem_register("misuse.${stem}" misuse "${source}"
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/misuse/run.py"
            "$<TARGET_FILE:hakmem>" "$<TARGET_FILE:${target}>" "${source}")
  if(stem MATCHES "^double_free" AND TEST "misuse.${stem}")
    hakmem_in_list(brief "misuse.${stem}" ${target})
  endif()
endforeach()

# All mistakes by all calls in all sizes: one program, one script, a table.
add_executable(misuse_matrix misuse/matrix/matrix.cpp)
set_target_properties(misuse_matrix PROPERTIES
  OUTPUT_NAME matrix RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/misuse")
target_compile_features(misuse_matrix PRIVATE cxx_std_17)
target_compile_options(misuse_matrix PRIVATE -w -O0 -fno-builtin -fsized-deallocation)
target_link_libraries(misuse_matrix PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
hakmem_add_libc(misuse_matrix hakmem)   # a C++ runtime in the program would come before a preloaded library
foreach(part IN ITEMS double invalid sized)
  hakmem_register("misuse.matrix.${part}" misuse "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/run.py"
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/run.py"
            "$<TARGET_FILE:hakmem>" "$<TARGET_FILE:misuse_matrix>" ${part})
endforeach()

foreach(part IN ITEMS double invalid sized written)
  hakmem_register("misuse.hardened.${part}" misuse "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/run.py"
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/run.py"
            "$<TARGET_FILE:hakmem>" "$<TARGET_FILE:misuse_matrix>" ${part} hardened)
endforeach()

# Mistakes of programs that know nothing of the library: how many are stopped in hardened mode.
add_executable(misuse_outside misuse/matrix/outside.c)
set_target_properties(misuse_outside PROPERTIES
  OUTPUT_NAME outside RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/misuse")
target_compile_options(misuse_outside PRIVATE -w -O0 -fno-builtin)
target_link_libraries(misuse_outside PRIVATE Threads::Threads)
hakmem_add_libc(misuse_outside hakmem_test_names)
hakmem_register("misuse.hardened.outside" misuse "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/outside.py"
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/outside.py"
          "$<TARGET_FILE:hakmem>" "$<TARGET_FILE:misuse_outside>")

# HAKMEM_MISUSE=report: mistakes that do not end the program, and what is left of its memory.
# hakmem_canary(<name> <source> <optimisation> <library>...): a program for misuse/canary/run.py.
function(hakmem_canary name source optimisation)
  add_executable(misuse_${name} misuse/canary/${source})
  set_target_properties(misuse_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/misuse")
  target_compile_options(misuse_${name} PRIVATE -w ${optimisation} -fno-builtin)
  target_link_libraries(misuse_${name} PRIVATE Threads::Threads ${ARGN})
  target_include_directories(misuse_${name} PRIVATE "${PROJECT_SOURCE_DIR}/include")
endfunction()
hakmem_canary(canary model.c -O1 hakmem)
hakmem_canary(kept kept.c -O1 hakmem)
hakmem_canary(places places.c -O0 hakmem)
hakmem_canary(strays strays.c -O0 ${CMAKE_DL_LIBS})
foreach(part IN ITEMS model programs file places strays kept)
  if(part STREQUAL "strays" AND NOT HAKMEM_LIBC_IS_GLIBC)   # no other C library's blocks are known
    continue()
  endif()
  hakmem_register("misuse.canary.${part}" misuse "${CMAKE_CURRENT_SOURCE_DIR}/misuse/canary/run.py"
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/misuse/canary/run.py"
            "$<TARGET_FILE:hakmem>" "$<TARGET_FILE_DIR:misuse_canary>" ${part})
endforeach()
foreach(part IN ITEMS double invalid sized)
  hakmem_register("misuse.canary.${part}" misuse "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/run.py"
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/run.py"
            "$<TARGET_FILE:hakmem>" "$<TARGET_FILE:misuse_matrix>" ${part} report)
endforeach()
foreach(part IN ITEMS double invalid sized written)
  hakmem_register("misuse.canary.hardened.${part}" misuse "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/run.py"
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/misuse/matrix/run.py"
            "$<TARGET_FILE:hakmem>" "$<TARGET_FILE:misuse_matrix>" ${part} hardened report)
endforeach()

# Scripts find what they look at in their environment.
set(script_environment ${hakmem_library_environment}
  "HAK_TEST_LIB=$<TARGET_FILE:hakmem>" "HAK_TEST_MALLOC_ONLY=$<TARGET_FILE:hakmem_malloc_only>" "HAK_TEST_ARCHIVE=$<TARGET_FILE:hakmem_static>"
  "HAK_TEST_OUT=${CMAKE_BINARY_DIR}" "HAK_TEST_VERSION=${PROJECT_VERSION}"
  "CMAKE=${CMAKE_COMMAND}" "CMAKE_GENERATOR=${CMAKE_GENERATOR}" "CC=${CMAKE_C_COMPILER}" "CXX=${CMAKE_CXX_COMPILER}")
foreach(folder IN ITEMS golden package pairs)
  hakmem_glob(scripts "${folder}/test_*.sh" "${folder}/test_*.py")
  foreach(script IN LISTS scripts)
    get_filename_component(stem "${script}" NAME_WE)
    set(interpreter sh)
    if(script MATCHES "\\.py$")
      set(interpreter "${Python3_EXECUTABLE}")
    endif()
    hakmem_register("${folder}.${stem}" ${folder} "${script}" COMMAND ${interpreter} "${script}")
    if(TEST "${folder}.${stem}")
      set_property(TEST "${folder}.${stem}" PROPERTY ENVIRONMENT ${script_environment})
    endif()
  endforeach()
endforeach()

# Every benchmark runs through on the library; a short run, whose figures mean nothing.
set(bench_smoke
  "bench_random_mixed 200000"
  "bench_mid_large_mt 2 20000"
  "bench_tiny_hot 16 1000000"
  "bench_large_mt 2 5000"
  "larson 1"
  "bench_tree 14 5"
  "bench_remote oneway 1 200000"
  "bench_remote exchange 1 200000"
  "bench_thread_churn 500"
  "bench_calloc 4096 16 20"
  "bench_realloc all 2"
  "bench_fragment 2 4 10 0"
  "bench_floor random_mixed 200000")
foreach(line IN LISTS bench_smoke)
  string(REPLACE " " ";" command "${line}")
  list(POP_FRONT command program)
  if(TARGET ${program})
    string(REGEX REPLACE " [0-9].*" "" name "${line}")
    string(REPLACE " " "_" name "${name}")
    add_test(NAME "bench.${name}" COMMAND ${program} ${command})
    set_tests_properties("bench.${name}" PROPERTIES
      LABELS bench TIMEOUT 120 PROCESSORS 2 ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:hakmem>")
  endif()
endforeach()

foreach(stem IN ITEMS test_lints test_soak test_check test_release test_site test_bare test_ci test_path)
  if(EXISTS "${PROJECT_SOURCE_DIR}/tools/${stem}.py")
    hakmem_register(tools.${stem} tools "${PROJECT_SOURCE_DIR}/tools/${stem}.py"
      COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/tools/${stem}.py")
  endif()
endforeach()
