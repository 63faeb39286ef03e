# HAKMEM for Homebrew on Linux, beside hakmem-0.1.0-source.tar.gz of ./dev release. Not tested.
class Hakmem < Formula
  desc "Drop-in malloc for Linux"
  url "file://#{__dir__}/hakmem-0.1.0-source.tar.gz"
  version "0.1.0"
  license "MIT"
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on :linux

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DHAKMEM_BUILD_TESTS=OFF",
           "-DHAKMEM_BUILD_BENCH=OFF", "-DHAKMEM_BUILD_DEMO=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end
end
