"""HAKMEM for Conan 2; ./dev package conan lays the source beside this file and builds it."""

from typing import Any

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class Hakmem(ConanFile):
    name = "hakmem"
    license = "MIT"
    description = "A drop-in malloc for Linux"
    package_type = "library"
    settings: Any = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False]}
    default_options = {"shared": True}
    exports_sources = "CMakeLists.txt", "cmake/*", "src/*", "include/*", "LICENSE"

    def validate(self):
        from conan.errors import ConanInvalidConfiguration

        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("HAKMEM is for 64-bit Linux")

    def configure(self):
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for name in ("TESTS", "BENCH", "DEMO"):
            toolchain.cache_variables[f"HAKMEM_BUILD_{name}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        """The targets are those of the library's own CMake package, which says how malloc's place is taken."""
        self.cpp_info.libs = ["hakmem"]
        self.cpp_info.builddirs = ["lib/cmake/hakmem"]
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.system_libs = ["pthread", "dl"]
