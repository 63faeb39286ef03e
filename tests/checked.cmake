# Tests of the inside: linked with hakmem_test, so they run beside the system's malloc and under sanitizers.
if(NOT TARGET hakmem_cmocka)
  message(FATAL_ERROR "cmocka was not found; './dev setup' installs it")
endif()

set(HAKMEM_CHECKED_ENVIRONMENT
  "ASAN_OPTIONS=abort_on_error=1:detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")
if(CMAKE_CROSSCOMPILING_EMULATOR)
  list(APPEND HAKMEM_CHECKED_ENVIRONMENT "HAK_TEST_EMULATED=${limit_factor}")
endif()

# Some kernels randomise addresses more than a sanitizer's shadow memory allows; its programs then
# stop at random at their start. setarch -R takes the randomness out.
set(HAKMEM_TEST_LAUNCHER ${CMAKE_CROSSCOMPILING_EMULATOR})
if(HAKMEM_SANITIZE MATCHES "thread")
  include(CheckSanitizerStart)
  hakmem_check_sanitizer_start(HAKMEM_TEST_LAUNCHER)
endif()

# hakmem_add_checked_tests(<folder> [PROCESSORS n] [ENVIRONMENT var=value...])
function(hakmem_add_checked_tests folder)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "PROCESSORS" "ENVIRONMENT")
  hakmem_return_if_left_out("${folder}")
  hakmem_glob(sources "${folder}/test_*.c" "${folder}/test_*.cpp")
  foreach(source IN LISTS sources)
    get_filename_component(stem "${source}" NAME_WE)
    set(target "${folder}_${stem}")
    add_executable(${target} "${source}")
    set_target_properties(${target} PROPERTIES
      OUTPUT_NAME "${stem}" RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/${folder}")
    target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
    target_compile_features(${target} PRIVATE cxx_std_17)
    target_link_libraries(${target} PRIVATE hakmem_test hakmem_cmocka)
    hakmem_register("${folder}.${stem}" ${folder} "${source}" COMMAND ${HAKMEM_TEST_LAUNCHER} $<TARGET_FILE:${target}>)
    set_property(TEST "${folder}.${stem}" PROPERTY ENVIRONMENT ${HAKMEM_CHECKED_ENVIRONMENT} ${ARG_ENVIRONMENT})
    if(ARG_PROCESSORS)
      set_property(TEST "${folder}.${stem}" PROPERTY PROCESSORS ${ARG_PROCESSORS})
    endif()
    hakmem_read_traits("${source}")
    if(TRAIT_CHECK OR folder MATCHES "^(unit|api)$")
      hakmem_in_list(check "${folder}.${stem}" ${target})
    endif()
    if(folder MATCHES "^(unit|api)$")
      hakmem_in_list(brief "${folder}.${stem}" ${target})
    endif()
  endforeach()
endfunction()

hakmem_add_checked_tests(unit)
hakmem_add_checked_tests(api)
hakmem_add_checked_tests(oom)
hakmem_add_checked_tests(race PROCESSORS 2)
# hakmem_also_hardened(<folder> <test> [ENVIRONMENT var=value...]): a test of the folder once more, in hardened mode.
function(hakmem_also_hardened folder stem)
  hakmem_return_if_left_out("${folder}")
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "" "ENVIRONMENT")
  hakmem_register("hardened.${folder}.${stem}" ${folder} "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${stem}.c"
    COMMAND ${HAKMEM_TEST_LAUNCHER} $<TARGET_FILE:${folder}_${stem}>)
  set_property(TEST "hardened.${folder}.${stem}" PROPERTY ENVIRONMENT
    ${HAKMEM_CHECKED_ENVIRONMENT} HAKMEM_HARDEN=1 ${ARG_ENVIRONMENT})
endfunction()

hakmem_add_checked_tests(stress PROCESSORS 2 ENVIRONMENT "HAK_STRESS_SECONDS=${HAKMEM_STRESS_SECONDS}")

foreach(stem IN ITEMS test_aligned test_calloc test_heap_trees test_heaps test_realloc test_regions test_rest test_sizes)
  hakmem_also_hardened(api ${stem})
  hakmem_in_list(check hardened.api.${stem} api_${stem})
  hakmem_in_list(brief hardened.api.${stem} api_${stem})
endforeach()
foreach(stem IN ITEMS test_random test_threads test_late test_fork_load)
  hakmem_also_hardened(stress ${stem} ENVIRONMENT "HAK_STRESS_SECONDS=${HAKMEM_STRESS_SECONDS}")
endforeach()
# With regions each thread keeps its spans, so what producers need is not bounded by what is in flight.
hakmem_also_hardened(stress test_producer_consumer
  ENVIRONMENT "HAK_STRESS_SECONDS=${HAKMEM_STRESS_SECONDS}" HAKMEM_HARDEN=canary+zero+random+guards+zero_size)
hakmem_also_hardened(oom test_failures ENVIRONMENT HAK_OOM_STRIDE=150 HAKMEM_HARDEN_QUARANTINE=0)
