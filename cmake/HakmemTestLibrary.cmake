# hakmem_test: every source compiled alone, with the checks on and only hak_* names defined.
file(GLOB_RECURSE hakmem_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*.c")
list(REMOVE_ITEM hakmem_sources "${PROJECT_SOURCE_DIR}/src/unity.c")

add_library(hakmem_test STATIC ${hakmem_sources})
target_link_libraries(hakmem_test PUBLIC hakmem_source)
target_compile_definitions(hakmem_test PUBLIC HAK_TESTING=1 HAK_DEBUG=1 HAK_OVERRIDE=0)
target_compile_options(hakmem_test PUBLIC -fno-omit-frame-pointer)

if(HAKMEM_SANITIZE)
  # Public, so that the tests themselves are instrumented too.
  set(hakmem_sanitize_options "-fsanitize=${HAKMEM_SANITIZE}" -fno-sanitize-recover=all)
  target_compile_options(hakmem_test PUBLIC ${hakmem_sanitize_options})
  target_link_options(hakmem_test PUBLIC ${hakmem_sanitize_options})
endif()
