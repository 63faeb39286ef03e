# HAKMEM for vcpkg, as an overlay port: vcpkg install hakmem --overlay-ports=packaging/recipes. Not tested.
set(SOURCE_PATH "${CURRENT_PORT_DIR}/../..")
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DHAKMEM_BUILD_TESTS=OFF -DHAKMEM_BUILD_BENCH=OFF -DHAKMEM_BUILD_DEMO=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/hakmem)
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
