//! The C functions of the HAKMEM memory allocator, which this crate builds from the source that it carries.
//!
//! Programs want the crate `hakmem`. `hakmem.h`, part of this crate as `c/include/hakmem.h`, states each function's contract.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_void};

mod stats;
pub use stats::*;

/// One option, as `hak_option_next` tells it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hak_option_info {
    pub name: *const c_char,
    pub help: *const c_char,
    pub kind: *const c_char,
    pub takes_effect: *const c_char,
    pub origin: *const c_char,
    /// the value as a word if it has one, else null
    pub word: *const c_char,
    pub value: u64,
    pub standard: u64,
    pub least: u64,
    pub most: u64,
}

extern "C" {
    pub fn hak_malloc(n: usize) -> *mut c_void;
    pub fn hak_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn hak_realloc(p: *mut c_void, n: usize) -> *mut c_void;
    pub fn hak_free(p: *mut c_void);
    pub fn hak_free_sized(p: *mut c_void, n: usize);
    pub fn hak_free_aligned_sized(p: *mut c_void, align: usize, n: usize);
    pub fn hak_aligned_alloc(align: usize, n: usize) -> *mut c_void;
    pub fn hak_usable_size(p: *const c_void) -> usize;
    pub fn hak_good_size(n: usize) -> usize;
    pub fn hak_collect() -> usize;
    pub fn hak_check_heap() -> c_int;
    pub fn hak_stats_print(fd: c_int);
    pub fn hak_stats_snapshot(out: *mut hak_stats, size: usize) -> c_int;
    pub fn hak_stats_ledger(out: *mut hak_stats, size: usize) -> c_int;
    pub fn hak_option_set(name: *const c_char, value: *const c_char) -> c_int;
    pub fn hak_option_get(name: *const c_char, value: *mut u64) -> c_int;
    pub fn hak_option_origin(name: *const c_char) -> *const c_char;
    pub fn hak_option_next(cursor: *mut usize, info: *mut hak_option_info) -> c_int;
    pub fn hak_version() -> *const c_char;
}
