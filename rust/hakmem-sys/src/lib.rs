//! The C functions of the HAKMEM memory allocator, which this crate builds from the source that it carries.
//!
//! Programs want the crate `hakmem`. `hakmem.h`, part of this crate as `c/include/hakmem.h`, states each function's contract.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_uchar, c_uint, c_void};

mod heaps;
mod stats;
pub use heaps::*;
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

/// A thread's labels; programs have pointers to them only.
#[repr(C)]
#[derive(Debug)]
pub struct hak_labels_t {
    _inside: [u8; 0],
}

extern "C" {
    pub fn hak_malloc(n: usize) -> *mut c_void;
    pub fn hak_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn hak_realloc(p: *mut c_void, n: usize) -> *mut c_void;
    pub fn hak_free(p: *mut c_void);
    pub fn hak_free_sized(p: *mut c_void, n: usize);
    pub fn hak_free_aligned_sized(p: *mut c_void, align: usize, n: usize);
    pub fn hak_aligned_alloc(align: usize, n: usize) -> *mut c_void;
    pub fn hak_aligned_calloc(align: usize, count: usize, size: usize) -> *mut c_void;
    pub fn hak_aligned_realloc(p: *mut c_void, align: usize, n: usize) -> *mut c_void;
    pub fn hak_usable_size(p: *const c_void) -> usize;
    pub fn hak_good_size(n: usize) -> usize;
    pub fn hak_collect() -> usize;
    pub fn hak_check_heap() -> c_int;
    pub fn hak_is_sparse(p: *const c_void, percent: c_uint) -> c_int;
    pub fn hak_are_sparse(blocks: *const *const c_void, count: usize, percent: c_uint, sparse: *mut c_uchar) -> usize;
    pub fn hak_stats_print(fd: c_int);
    pub fn hak_stats_snapshot(out: *mut hak_stats, size: usize) -> c_int;
    pub fn hak_stats_ledger(out: *mut hak_stats, size: usize) -> c_int;
    pub fn hak_option_set(name: *const c_char, value: *const c_char) -> c_int;
    pub fn hak_option_get(name: *const c_char, value: *mut u64) -> c_int;
    pub fn hak_option_origin(name: *const c_char) -> *const c_char;
    pub fn hak_option_next(cursor: *mut usize, info: *mut hak_option_info) -> c_int;
    pub fn hak_profile_start(interval: usize) -> c_int;
    pub fn hak_profile_stop();
    pub fn hak_profile_dump(path: *const c_char) -> c_int;
    pub fn hak_version() -> *const c_char;
    pub fn hak_label_set(key: *const c_char, value: *const c_char) -> *const hak_labels_t;
    pub fn hak_label_switch(labels: *const hak_labels_t) -> *const hak_labels_t;
    pub fn hak_label_get() -> *const hak_labels_t;
    pub fn hak_heap_new(options: *const hak_heap_options) -> *mut hak_heap_t;
    #[cfg(feature = "region")]
    pub fn hak_heap_attach(region: *mut c_void, size: usize) -> *mut hak_heap_t;
    #[cfg(feature = "region")]
    pub fn hak_heap_detach(heap: *mut hak_heap_t);
    pub fn hak_heap_destroy(heap: *mut hak_heap_t);
    pub fn hak_heap_reset(heap: *mut hak_heap_t);
    pub fn hak_heap_merge_into_default(heap: *mut hak_heap_t) -> c_int;
    pub fn hak_heap_malloc(heap: *mut hak_heap_t, n: usize) -> *mut c_void;
    pub fn hak_heap_calloc(heap: *mut hak_heap_t, count: usize, size: usize) -> *mut c_void;
    pub fn hak_heap_aligned_alloc(heap: *mut hak_heap_t, align: usize, n: usize) -> *mut c_void;
    pub fn hak_heap_aligned_calloc(heap: *mut hak_heap_t, align: usize, count: usize, size: usize) -> *mut c_void;
    pub fn hak_heap_realloc(heap: *mut hak_heap_t, p: *mut c_void, n: usize) -> *mut c_void;
    pub fn hak_heap_aligned_realloc(heap: *mut hak_heap_t, p: *mut c_void, align: usize, n: usize) -> *mut c_void;
    pub fn hak_heap_free(heap: *mut hak_heap_t, p: *mut c_void);
    pub fn hak_heap_of(p: *const c_void) -> *mut hak_heap_t;
    pub fn hak_heap_parent(heap: *mut hak_heap_t) -> *mut hak_heap_t;
    pub fn hak_heap_collect(heap: *mut hak_heap_t) -> usize;
    pub fn hak_heap_at_end(
        heap: *mut hak_heap_t,
        cleanup: Option<unsafe extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
    ) -> c_int;
    pub fn hak_heap_at_end_cancel(
        heap: *mut hak_heap_t,
        cleanup: Option<unsafe extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
    ) -> c_int;
    pub fn hak_heap_set_name(heap: *mut hak_heap_t, name: *const c_char) -> c_int;
    pub fn hak_heap_set_data(heap: *mut hak_heap_t, data: *mut c_void) -> *mut c_void;
    pub fn hak_heap_data(heap: *mut hak_heap_t) -> *mut c_void;
    pub fn hak_heap_limit_large(heap: *mut hak_heap_t, used: usize, limit: usize, wanted: usize, most: *mut c_void) -> c_int;
    pub fn hak_heap_set_limit(heap: *mut hak_heap_t, limit: usize);
    pub fn hak_heap_stats(heap: *mut hak_heap_t, out: *mut hak_heap_figures, size: usize) -> c_int;
    pub fn hak_heap_visit(
        heap: *mut hak_heap_t,
        visit: hak_heap_visitor,
        argument: *mut c_void,
    ) -> c_int;
    pub fn hak_heap_visit_spans(
        heap: *mut hak_heap_t,
        visit: hak_heap_span_visitor,
        argument: *mut c_void,
    ) -> c_int;
    pub fn hak_heap_next(heap: *mut hak_heap_t) -> *mut hak_heap_t;
    pub fn hak_heap_set_default(heap: *mut hak_heap_t) -> *mut hak_heap_t;
    pub fn hak_heap_get_default() -> *mut hak_heap_t;
    pub fn hak_heap_set_default_of_new_threads(heap: *mut hak_heap_t) -> *mut hak_heap_t;
    /// The C library's `errno` of the calling thread.
    pub fn __errno_location() -> *mut c_int;
}
