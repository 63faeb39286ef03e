# hakmem_test: every source compiled alone, with the checks on and only hak_* names defined.
file(GLOB_RECURSE hakmem_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*.c")
list(REMOVE_ITEM hakmem_sources "${PROJECT_SOURCE_DIR}/src/unity.c" "${PROJECT_SOURCE_DIR}/src/unity_rare.c"
     "${PROJECT_SOURCE_DIR}/src/unity_region.c")

add_library(hakmem_test STATIC ${hakmem_sources})
target_link_libraries(hakmem_test PUBLIC hakmem_source)
target_compile_definitions(hakmem_test PUBLIC HAK_TESTING=1 HAK_DEBUG=1 HAK_OVERRIDE=0)
target_compile_options(hakmem_test PUBLIC -fno-omit-frame-pointer)

if(CMAKE_CROSSCOMPILING)
  target_sources(hakmem_test PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/qemu.c")
  target_link_options(hakmem_test INTERFACE -Wl,--wrap=madvise -Wl,--wrap=mincore -Wl,--wrap=syscall)
endif()

if(HAKMEM_SANITIZE)
  # Public, so that the tests themselves are instrumented too.
  set(hakmem_sanitize_options "-fsanitize=${HAKMEM_SANITIZE}" -fno-sanitize-recover=all)
  target_compile_options(hakmem_test PUBLIC ${hakmem_sanitize_options})
  target_link_options(hakmem_test PUBLIC ${hakmem_sanitize_options})
endif()

# Every header compiles alone; public ones in C++ too.
if(NOT HAKMEM_SANITIZE)
  set(header_units "")
  foreach(folder IN ITEMS src include)
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/${folder}"
         "${PROJECT_SOURCE_DIR}/${folder}/*.h")
    set(suffixes c)
    if(folder STREQUAL "include")
      list(APPEND suffixes cpp)
    endif()
    foreach(header IN LISTS headers)
      foreach(suffix IN LISTS suffixes)
        set(unit "${PROJECT_BINARY_DIR}/headers/${header}.${suffix}")
        file(CONFIGURE OUTPUT "${unit}" CONTENT "#include \"${header}\"\n")
        list(APPEND header_units "${unit}")
      endforeach()
    endforeach()
  endforeach()
  add_library(hakmem_headers OBJECT ${header_units})
  target_link_libraries(hakmem_headers PRIVATE hakmem_test)
endif()
