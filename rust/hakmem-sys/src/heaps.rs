//! User heaps, written by tools/gen_bindings.py from include/hakmem.h.

use core::ffi::{c_char, c_int, c_void};

/// A heap; programs have pointers to it only.
#[repr(C)]
#[derive(Debug)]
pub struct hak_heap_t {
    _inside: [u8; 0],
}

/// Called at the limit; not 0 to try again.
pub type hak_heap_pressure = unsafe extern "C" fn(*mut hak_heap_t, usize, usize, usize, *mut c_void) -> c_int;
/// Called for each block; anything but 0 ends the visit.
pub type hak_heap_visitor = unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int;
/// The same, for each span.
pub type hak_heap_span_visitor = unsafe extern "C" fn(*const hak_heap_span, *mut c_void) -> c_int;

pub const HAK_HEAP_PURGE_LATER: u32 = 0;
pub const HAK_HEAP_PURGE_AT_ONCE: u32 = 1;
pub const HAK_HEAP_HARDENED: u32 = 1;
pub const HAK_HEAP_SHARED: u32 = 2;
pub const HAK_HEAP_BUMP: u32 = 4;

/// `struct hak_heap_options` of `hakmem.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hak_heap_options {
    /// sizeof(struct hak_heap_options)
    pub size: usize,
    /// for statistics, in UTF-8; at most 47 bytes are kept; NULL: none
    pub name: *const c_char,
    /// bytes that blocks have ever reached in slabs, and of huge blocks, with heaps below; 0: no limit
    pub limit: usize,
    pub pressure: Option<hak_heap_pressure>,
    /// of the pressure callback
    pub argument: *mut c_void,
    /// enum hak_heap_purge
    pub purge: u32,
    /// HAK_HEAP_...
    pub flags: u32,
    /// where the heap lives, instead of memory from the system; NULL: none (hakmem_region.h)
    pub region: *mut c_void,
    /// at least 64 KiB; a shared one begins at a multiple of 4 KiB
    pub region_size: usize,
    /// the heap that this one is part of; NULL: none, as for a heap in a region
    pub parent: *mut hak_heap_t,
}

/// `struct hak_heap_figures` of `hakmem.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hak_heap_figures {
    /// valid until the heap ends or its name changes; NULL: malloc's figures
    pub name: *const c_char,
    /// counts heaps as they are made or attached; 0: malloc, or a region beyond the 64th
    pub serial: u64,
    /// what blocks have reached in slabs, huge blocks, samples: counted against the limit
    pub used_bytes: u64,
    /// its maximum so far; malloc's: the same as used_bytes
    pub peak_bytes: u64,
    /// allocated and not freed; bytes by usable size, in hardened mode by class
    pub live_blocks: u64,
    /// allocated and not freed; bytes by usable size, in hardened mode by class
    pub live_bytes: u64,
    /// 0: none
    pub limit: u64,
    /// times that the limit, or one above, refused memory; malloc's: 0
    pub refused: u64,
    /// ready in threads' bins
    pub cached_bytes: u64,
    pub slab_bytes: u64,
    pub huge_blocks: u64,
    pub huge_bytes: u64,
    /// threads that have bins here now; sets of bins
    pub threads: u64,
    /// threads that have bins here now; sets of bins
    pub shares: u64,
}

/// `struct hak_heap_span` of `hakmem.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hak_heap_span {
    pub begin: *mut c_void,
    pub end: *mut c_void,
    /// of each block; 0: they have several
    pub size: usize,
    /// the program's; at least one
    pub blocks: usize,
    /// their usable size, in hardened mode by class
    pub bytes: usize,
    /// what blocks have ever reached, so what is resident at most, to whole pages
    pub reached: usize,
}
