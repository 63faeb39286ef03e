//! Heap profiles as pprof for Pyroscope, Parca and `go tool pprof`, with the shape of the crate `jemalloc_pprof`. A program that used
//! that one changes its global allocator, and says `use hakmem::pprof as jemalloc_pprof;`.
//!
//! ```
//! # #[global_allocator] static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
//! /// GET /debug/pprof/heap, for axum and others.
//! async fn heap() -> Result<Vec<u8>, String> {
//!     let mut profile = hakmem::pprof::PROF_CTL.as_ref().ok_or("no profiler")?.lock().await;
//!     if !profile.activated() {
//!         return Err("the heap profiler is not activated".to_string());
//!     }
//!     profile.dump_pprof().map_err(|error| error.to_string())
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! hakmem::pprof::activate_profiling().await?;
//! let kept = vec![0u8; 50_000_000];
//! assert!(heap().await.unwrap().len() > 100 && kept.len() > 0);
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```
//!
//! `HAKMEM_PROFILE=1` activates the profiler from the program's start. The labels of samples are in HAKMEM's own dumps alone, which
//! hakmem-exporter serves as pprof.

extern crate std;

use std::ffi::CString;
use std::format;
use std::fs::File;
use std::io::{BufReader, Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::vec::Vec;

use tokio::sync::Mutex;

use crate::{options, sys};

/// The profiler; there is always one.
pub static PROF_CTL: Option<Mutex<ProfCtl>> = Some(Mutex::const_new(ProfCtl { state: None }));

/// Switches the profiler and takes its dumps.
#[derive(Debug)]
pub struct ProfCtl {
    /// Whether it was switched on or off here.
    state: Option<bool>,
}

pub use ProfCtl as JemallocProfCtl;

fn checked(code: i32) -> Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(Error::from_raw_os_error(code))
    }
}

impl ProfCtl {
    /// Whether allocations are sampled, as far as this type and `HAKMEM_PROFILE=1` tell.
    pub fn activated(&self) -> bool {
        self.state.unwrap_or_else(|| options::PROFILE.get() == Ok(1))
    }

    /// Begins to sample, one allocation in about [`options::PROFILE_INTERVAL`] bytes.
    pub fn activate(&mut self) -> Result<()> {
        // SAFETY: has no precondition.
        checked(unsafe { sys::hak_profile_start(0) })?;
        self.state = Some(true);
        Ok(())
    }

    /// Samples no more; the blocks sampled so far are still followed.
    pub fn deactivate(&mut self) -> Result<()> {
        // SAFETY: has no precondition.
        unsafe { sys::hak_profile_stop() };
        self.state = Some(false);
        Ok(())
    }

    /// A dump as text that jemalloc's tools read.
    pub fn dump(&mut self) -> Result<File> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("profile.heap");
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the name ends in a NUL.
        checked(unsafe { sys::hak_profile_dump(name.as_ptr()) }).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Error::new(error.kind(), "no profile: HAKMEM_PROFILE=1 or activate() starts one"),
            _ => error,
        })?;
        File::open(path)
    }

    /// The live heap in bytes as gzipped pprof, with the names of functions.
    pub fn dump_pprof(&mut self) -> Result<Vec<u8>> {
        let mut profile = pprof_util::parse_jeheap(BufReader::new(self.dump()?), mappings::MAPPINGS.as_deref())
            .map_err(|error| Error::new(ErrorKind::InvalidData, format!("{error:#}")))?;
        profile.stacks.retain(|(stack, _)| stack.weight.is_finite()); // it divides by the number of live blocks
        Ok(profile.to_pprof(("inuse_space", "bytes"), ("space", "bytes"), None))
    }
}

fn control() -> Result<&'static Mutex<ProfCtl>> {
    PROF_CTL.as_ref().ok_or_else(|| ErrorKind::Unsupported.into())
}

/// [`ProfCtl::activate`] of [`PROF_CTL`].
pub async fn activate_profiling() -> Result<()> {
    control()?.lock().await.activate()
}

/// [`ProfCtl::deactivate`] of [`PROF_CTL`].
pub async fn deactivate_profiling() -> Result<()> {
    control()?.lock().await.deactivate()
}

pub use {activate_profiling as activate_jemalloc_profiling, deactivate_profiling as deactivate_jemalloc_profiling};
