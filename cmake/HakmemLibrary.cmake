# libhakmem.so and libhakmem.a: one translation unit, compiled once, linked twice; and their installation.
include(CMakePackageConfigHelpers)

add_library(hakmem_unit OBJECT "${PROJECT_SOURCE_DIR}/src/unity.c")
target_link_libraries(hakmem_unit PRIVATE hakmem_source)
target_compile_definitions(hakmem_unit PRIVATE HAK_UNITY=1 HAK_OVERRIDE=1 NDEBUG)
target_compile_options(hakmem_unit PRIVATE
  ${HAKMEM_OPTIMIZE} -fPIC -fvisibility=hidden -ftls-model=initial-exec)
hakmem_add_flags_if_known(hakmem_unit PRIVATE -fno-plt -fno-semantic-interposition -fcf-protection=none)

add_library(hakmem SHARED $<TARGET_OBJECTS:hakmem_unit>)
set_target_properties(hakmem PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  LINKER_LANGUAGE C)
# nodelete: live blocks and thread destructors outlast any dlclose.
target_link_options(hakmem PRIVATE "LINKER:-z,noseparate-code"
  "LINKER:-z,now,-z,relro,-z,noexecstack,-z,nodelete,--no-undefined")

# Linking the library replaces malloc, also in a program whose own objects never name a function of it.
target_link_options(hakmem INTERFACE "LINKER:--no-as-needed")

add_library(hakmem_static STATIC $<TARGET_OBJECTS:hakmem_unit>)
set_target_properties(hakmem_static PROPERTIES OUTPUT_NAME hakmem LINKER_LANGUAGE C)
target_link_options(hakmem_static INTERFACE "LINKER:-u,malloc")

foreach(library IN ITEMS hakmem hakmem_static)
  target_link_libraries(${library} PUBLIC Threads::Threads)
  target_include_directories(${library} INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  add_library(hakmem::${library} ALIAS ${library})
endforeach()

set(hakmem_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hakmem")
install(TARGETS hakmem hakmem_static EXPORT hakmem-targets
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
configure_file("${CMAKE_CURRENT_LIST_DIR}/hakmem.pc.in" "${PROJECT_BINARY_DIR}/cmake/hakmem.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/cmake/hakmem.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
