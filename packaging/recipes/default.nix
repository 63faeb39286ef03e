# HAKMEM for Nix: nix-build packaging/recipes. Not tested.
{ pkgs ? import <nixpkgs> { } }:

pkgs.stdenv.mkDerivation {
  pname = "hakmem";
  version = "0.1.0";
  src = ../..;
  nativeBuildInputs = [ pkgs.cmake pkgs.ninja ];
  cmakeFlags = [ "-DHAKMEM_BUILD_TESTS=OFF" "-DHAKMEM_BUILD_BENCH=OFF" "-DHAKMEM_BUILD_DEMO=OFF" ];
  meta = {
    description = "A drop-in malloc for Linux";
    license = pkgs.lib.licenses.mit;
    platforms = [ "x86_64-linux" "aarch64-linux" ];
  };
}
