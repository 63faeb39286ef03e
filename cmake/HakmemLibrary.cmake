# libhakmem.so and libhakmem.a: two translation units, compiled once, linked twice; what only the former has; libhakmem-region beside
# both; and their installation.
include(CMakePackageConfigHelpers)
include(CheckLinkerFlag)

# What runs rarely is compiled for size.
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/unity_rare.c" PROPERTIES COMPILE_OPTIONS -Os)

# hakmem_add_unit(<target> <protect> <interpose> [<source>...]): the compiled units, with or without the checks of every free, and with or without
# what stands in front of functions beyond malloc's family. Never as input of link-time optimisation, which a project around this
# one may ask for, by CMake or by -flto: the compiler would hold its own declarations of malloc's names and of std::bad_alloc against those here.
function(hakmem_add_unit target protect interpose)
  set(sources ${ARGN})
  if(NOT sources)
    set(sources "${PROJECT_SOURCE_DIR}/src/unity.c" "${PROJECT_SOURCE_DIR}/src/unity_rare.c")
  endif()
  add_library(${target} OBJECT ${sources})
  target_link_libraries(${target} PRIVATE hakmem_source)
  target_compile_definitions(${target} PRIVATE HAK_UNITY=1 HAK_OVERRIDE=1 NDEBUG
    "HAK_PROTECT=$<BOOL:${protect}>" "HAK_INTERPOSE=$<STREQUAL:${interpose},all>")
  set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  target_compile_options(${target} PRIVATE
    ${HAKMEM_OPTIMIZE} -fno-lto -fPIC -fvisibility=hidden -ftls-model=initial-exec)
  hakmem_add_flags_if_known(${target} PRIVATE -fno-plt -fno-semantic-interposition -fcf-protection=none
    -mbranch-protection=standard)
endfunction()

# hakmem_add_beside(<target> <shared> <source>...): what libhakmem.so or libhakmem.a has by itself. dlopen's last call must be a
# jump, whatever else is optimised.
function(hakmem_add_beside target shared)
  add_library(${target} OBJECT ${ARGN})
  target_link_libraries(${target} PRIVATE hakmem_source)
  target_compile_definitions(${target} PRIVATE HAK_OVERRIDE=1 NDEBUG HAK_SHARED=${shared})
  set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  target_compile_options(${target} PRIVATE
    ${HAKMEM_OPTIMIZE} -O2 -fno-lto -foptimize-sibling-calls -fPIC -fvisibility=hidden -ftls-model=initial-exec)
  hakmem_add_flags_if_known(${target} PRIVATE -fno-plt -fcf-protection=none -mbranch-protection=standard)
endfunction()
file(GLOB hakmem_interposed CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/interpose/*.c")
hakmem_add_beside(hakmem_interposed 1 ${hakmem_interposed})
set(hakmem_differing "${PROJECT_SOURCE_DIR}/src/entry/cxx_linked.c" "${PROJECT_SOURCE_DIR}/src/os/keys.c")
hakmem_add_beside(hakmem_shared_only 1 ${hakmem_differing})
hakmem_add_beside(hakmem_archive_only 0 ${hakmem_differing})

# The order of sections is GNU ld's own with two moved (layout.ld). Other linkers lay files out otherwise: theirs stays as it is.
separate_arguments(hakmem_linker_flags UNIX_COMMAND "${CMAKE_SHARED_LINKER_FLAGS}")
execute_process(COMMAND "${CMAKE_C_COMPILER}" ${hakmem_linker_flags} -Wl,--version
                OUTPUT_VARIABLE hakmem_linker ERROR_QUIET)
check_linker_flag(C "LINKER:-z,noseparate-code" HAKMEM_HAS_noseparate_code)   # zig's knows it not
set(hakmem_layout "${CMAKE_CURRENT_LIST_DIR}/layout.ld")
set(hakmem_symbols "${CMAKE_CURRENT_LIST_DIR}/symbols.map")

# hakmem_add_shared(<target> <unit> <interpose>): nodelete, because live blocks and thread destructors outlast any dlclose.
function(hakmem_add_shared target unit interpose)
  add_library(${target} SHARED $<TARGET_OBJECTS:${unit}> $<TARGET_OBJECTS:hakmem_shared_only>
              $<$<STREQUAL:${interpose},all>:$<TARGET_OBJECTS:hakmem_interposed>>)
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
  target_link_options(${target} PRIVATE "LINKER:-z,now,-z,relro,-z,noexecstack,-z,nodelete,--no-undefined"
    "$<$<BOOL:${HAKMEM_HAS_noseparate_code}>:LINKER:-z,noseparate-code>")
  target_link_options(${target} PRIVATE "LINKER:--version-script,${hakmem_symbols}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${hakmem_symbols}")
  if(hakmem_linker MATCHES "GNU ld")
    target_link_options(${target} PRIVATE "LINKER:-T,${hakmem_layout}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${hakmem_layout}")
  endif()
endfunction()

hakmem_add_unit(hakmem_unit "${HAKMEM_PROTECT}" "${HAKMEM_INTERPOSE}")
hakmem_add_shared(hakmem hakmem_unit "${HAKMEM_INTERPOSE}")
set_target_properties(hakmem PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

# What the checks cost is measured against the same library without them. Not installed.
if(HAKMEM_BUILD_TESTS OR HAKMEM_BUILD_BENCH)
  hakmem_add_unit(hakmem_unprotected_unit OFF all)
  hakmem_add_shared(hakmem_unprotected hakmem_unprotected_unit all)
  target_link_libraries(hakmem_unprotected PRIVATE Threads::Threads)
  set_target_properties(hakmem_unprotected PROPERTIES OUTPUT_NAME hakmem-unprotected)
endif()

# What HAKMEM_INTERPOSE=malloc-only builds is tested beside the whole. Not installed.
if(HAKMEM_BUILD_TESTS)
  hakmem_add_unit(hakmem_malloc_only_unit "${HAKMEM_PROTECT}" malloc-only)
  hakmem_add_shared(hakmem_malloc_only hakmem_malloc_only_unit malloc-only)
  target_link_libraries(hakmem_malloc_only PRIVATE Threads::Threads)
  set_target_properties(hakmem_malloc_only PROPERTIES OUTPUT_NAME hakmem-malloc-only)
endif()

# Linking the library replaces malloc, also in a program whose own objects never name a function of it.
target_link_options(hakmem INTERFACE "LINKER:--no-as-needed")
# Where the C++ runtime is linked into the program (-static-libstdc++): operator new throws by this function of it.
target_link_options(hakmem INTERFACE "$<$<LINK_LANGUAGE:CXX>:LINKER:-u,_ZSt17__throw_bad_allocv>")

add_library(hakmem_static STATIC $<TARGET_OBJECTS:hakmem_unit> $<TARGET_OBJECTS:hakmem_archive_only>)
set_target_properties(hakmem_static PROPERTIES OUTPUT_NAME hakmem LINKER_LANGUAGE C)
target_link_options(hakmem_static INTERFACE "LINKER:-u,malloc")

# Heaps in memory that the program provides. Its thread-local word must work in a library that is loaded late.
hakmem_add_unit(hakmem_region_unit "${HAKMEM_PROTECT}" "${HAKMEM_INTERPOSE}" "${PROJECT_SOURCE_DIR}/src/unity_region.c")
target_compile_options(hakmem_region_unit PRIVATE -Os -ftls-model=global-dynamic)
add_library(hakmem_region SHARED $<TARGET_OBJECTS:hakmem_region_unit>)
set_target_properties(hakmem_region PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_link_options(hakmem_region PRIVATE "LINKER:--version-script,${CMAKE_CURRENT_LIST_DIR}/region.map"
  "$<$<BOOL:${HAKMEM_HAS_noseparate_code}>:LINKER:-z,noseparate-code>" "LINKER:-z,now,-z,relro,-z,noexecstack,-z,nodelete,--no-undefined")
target_link_libraries(hakmem_region PUBLIC hakmem)
target_link_options(hakmem_region INTERFACE "LINKER:--no-as-needed")
add_library(hakmem_region_static STATIC $<TARGET_OBJECTS:hakmem_region_unit>)
target_link_libraries(hakmem_region_static PUBLIC hakmem_static)
target_link_options(hakmem_region_static INTERFACE "LINKER:-u,hak_heap_attach")
set_target_properties(hakmem_region hakmem_region_static PROPERTIES OUTPUT_NAME hakmem-region LINKER_LANGUAGE C)
# The place of the build stays in a file's strings when the installation takes it out of the search path.
set_target_properties(hakmem_region PROPERTIES BUILD_RPATH_USE_ORIGIN ON)

foreach(library IN ITEMS hakmem hakmem_static hakmem_region hakmem_region_static)
  target_link_libraries(${library} PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
  target_include_directories(${library} INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  add_library(hakmem::${library} ALIAS ${library})
endforeach()

set(hakmem_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hakmem")
install(TARGETS hakmem hakmem_static hakmem_region hakmem_region_static EXPORT hakmem-targets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT hakmem-targets NAMESPACE hakmem:: DESTINATION "${hakmem_cmake_dir}")

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/hakmem-config.cmake.in" "${PROJECT_BINARY_DIR}/cmake/hakmem-config.cmake"
  INSTALL_DESTINATION "${hakmem_cmake_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/cmake/hakmem-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cmake/hakmem-config.cmake"
              "${PROJECT_BINARY_DIR}/cmake/hakmem-config-version.cmake"
        DESTINATION "${hakmem_cmake_dir}")

# The prefix is found from the file's own place, so that an installed tree can be moved.
file(RELATIVE_PATH hakmem_pc_prefix
     "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
foreach(name IN ITEMS hakmem hakmem-region)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in" "${PROJECT_BINARY_DIR}/cmake/${name}.pc" @ONLY)
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/cmake/hakmem.pc" "${PROJECT_BINARY_DIR}/cmake/hakmem-region.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
