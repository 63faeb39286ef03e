//! Compiles the library's units, with the options that unit.flags lists.

use std::{env, fs, path::Path};

/// The words behind `name` in unit.flags.
fn flags(text: &str, name: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_whitespace());
    lines.flat_map(|mut words| if words.next() == Some(name) { words.map(String::from).collect() } else { vec![] }).collect()
}

fn define(build: &mut cc::Build, text: &str) {
    for each in flags(text, "define") {
        match each.split_once('=') {
            Some((name, value)) => build.define(name, value),
            None => build.define(&each, None),
        };
    }
    let overriding = env::var_os("CARGO_FEATURE_OVERRIDE").is_some();
    build.define("HAK_OVERRIDE", if overriding { "1" } else { "0" });
    build.define("HAK_SHARED", "0");
    build.define("HAK_VERSION_STRING", format!("\"{}\"", env::var("CARGO_PKG_VERSION").unwrap()).as_str());
}

/// A compiler that is set up for the library's sources. unit.flags says how far they are optimised and debugged, not the profile of
/// the program.
fn compiler(text: &str) -> cc::Build {
    let mut build = cc::Build::new();
    build.includes(["c/src", "c/include"]).warnings(false).opt_level(2).debug(false);
    define(&mut build, text);
    for each in flags(text, "compile") {
        build.flag(&each);
    }
    for each in flags(text, "known") {
        build.flag_if_supported(&each);
    }
    build
}

fn main() {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") || env::var("CARGO_CFG_TARGET_POINTER_WIDTH").as_deref() != Ok("64") {
        panic!("hakmem-sys is for 64-bit Linux");
    }
    let text = fs::read_to_string("c/unit.flags").expect("c/unit.flags is part of the crate");
    let mut rare = compiler(&text);
    for each in flags(&text, "rare") {
        rare.flag(&each);
    }
    rare.file("c/src/unity_rare.c");
    if env::var_os("CARGO_FEATURE_REGION").is_some() {
        rare.file("c/src/unity_region.c");
    }
    let rare = rare.compile_intermediates();
    let units = ["c/src/unity.c", "c/src/entry/cxx_linked.c", "c/src/os/keys.c"].map(Path::new);
    compiler(&text).files(units).objects(rare).compile("hakmem");
    println!("cargo:rustc-link-lib=pthread");
    println!("cargo:rustc-link-lib=dl");
    println!("cargo:rerun-if-changed=c");
    println!("cargo:include={}/c/include", env::var("CARGO_MANIFEST_DIR").unwrap());
}
