//! The HAKMEM memory allocator as Rust's global allocator, its options and its statistics.
//!
//! ```
//! use hakmem::Hakmem;
//!
//! #[global_allocator]
//! static GLOBAL: Hakmem = Hakmem;
//!
//! fn main() {
//!     let numbers: Vec<u64> = (0..1000).collect();
//!     assert!(hakmem::usable_size(numbers.as_ptr()) >= 8000);
//! }
//! ```
//!
//! Every deallocation passes on the size that Rust knows, so that one of another size than the block was asked for stops the
//! program. Memory that is used up is a null pointer, which Rust's collections turn into their own error.
#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_void, CStr};
use core::mem::MaybeUninit;

pub use hakmem_sys as sys;
/// All figures of the allocator; `docs/statistics.md` of the project explains each.
pub use hakmem_sys::hak_stats as Stats;

pub mod heap;
pub mod label;
#[cfg(feature = "metrics")]
pub mod metrics;
mod names;
pub mod options;
#[cfg(feature = "pprof")]
pub mod pprof;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What every block is aligned to.
const ALIGNED: usize = 16;

/// The allocator; it has no state of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hakmem;

// SAFETY: the library's blocks are as large and aligned as asked for, belong to the caller until they are freed, and the
// functions neither unwind nor call Rust back.
unsafe impl GlobalAlloc for Hakmem {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED {
            sys::hak_malloc(layout.size()).cast()
        } else {
            sys::hak_aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.align() <= ALIGNED {
            sys::hak_free_sized(block.cast(), layout.size());
        } else {
            sys::hak_free_aligned_sized(block.cast(), layout.align(), layout.size());
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED {
            return sys::hak_calloc(1, layout.size()).cast();
        }
        sys::hak_aligned_calloc(layout.align(), 1, layout.size()).cast()
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNED {
            return sys::hak_realloc(block.cast(), size).cast();
        }
        sys::hak_aligned_realloc(block.cast(), layout.align(), size).cast()
    }
}

/// An `errno` of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub i32);

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "error {} of the allocator", self.0)
    }
}

fn filled(ask: unsafe extern "C" fn(*mut Stats, usize) -> i32) -> Result<Stats, Error> {
    let mut out = MaybeUninit::<Stats>::zeroed();
    // SAFETY: the library writes no more than the size says, and every pattern of bits is a value of the structure.
    match unsafe { ask(out.as_mut_ptr(), core::mem::size_of::<Stats>()) } {
        0 => Ok(unsafe { out.assume_init() }),
        number => Err(Error(number)),
    }
}

/// The statistics now. Nobody is stopped: each figure is of its own moment. Allocates nothing; the structure is some kilobytes.
///
/// ```
/// # #[global_allocator] static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
/// let before = hakmem::stats()?.bytes_live;
/// let kept = vec![0u8; 50_000];
/// assert!(hakmem::stats()?.bytes_live >= before + kept.len() as u64);
/// # Ok::<(), hakmem::Error>(())
/// ```
pub fn stats() -> Result<Stats, Error> {
    filled(sys::hak_stats_snapshot)
}

/// The same with all resident memory by state (`ledger_*`), which takes some milliseconds.
pub fn ledger() -> Result<Stats, Error> {
    filled(sys::hak_stats_ledger)
}

/// Empties the calling thread's cache and returns unused memory to the system at once. The bytes returned.
pub fn collect() -> usize {
    // SAFETY: has no precondition.
    unsafe { sys::hak_collect() }
}

/// Whether all invariants of the allocator's data hold; standard error names the first that does not.
pub fn check_heap() -> bool {
    // SAFETY: has no precondition outside of signal handlers.
    unsafe { sys::hak_check_heap() == 1 }
}

/// The bytes that may be used in a block of this allocator; 0 for null. Stops the program if the pointer is no block of it.
pub fn usable_size<T>(block: *const T) -> usize {
    // SAFETY: the library checks the pointer, and reads nothing through it.
    unsafe { sys::hak_usable_size(block.cast::<c_void>()) }
}

/// The library's version, e.g. `0.1.0`.
pub fn version() -> &'static str {
    // SAFETY: the text is the library's, constant and ASCII.
    unsafe { CStr::from_ptr(sys::hak_version()) }.to_str().unwrap_or("")
}
