//! The ledger of resident memory from outside: what each resident byte of a process is to the allocator (docs/statistics.md).
//! Resident pages come from /proc/PID/pagemap, the use of each slab from the library's owner map. A span's resident bytes are
//! divided by its counters; what live and cached blocks do not need is free.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::live::{Page, Snapshot};
use crate::memory::Fault;
use crate::process::Mapping;

/// Larger heaps take too long to look at page by page.
const MOST_BYTES: u64 = 64 << 30;
/// SuperSlabs at a time, so that memory stays small.
const PIECE: u64 = 32;
const PRESENT: u64 = 1 << 63;

/// Resident bytes by state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    pub live: u64,
    pub cached: u64,
    pub free_in_slabs: u64,
    pub empty: u64,
    pub huge: u64,
    pub metadata: u64,
    pub not_ours: u64,
    /// Of `free_in_slabs`: in spans that live blocks keep.
    pub pinned: u64,
    /// The size class with most of it.
    pub pinned_most: (u64, u64), // (size, bytes)
}

impl Ledger {
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        [
            ("live", self.live),
            ("cached", self.cached),
            ("free_in_slabs", self.free_in_slabs),
            ("empty", self.empty),
            ("huge", self.huge),
            ("metadata", self.metadata),
            ("not_ours", self.not_ours),
        ]
    }

    pub fn sum(&self) -> u64 {
        self.parts().iter().fold(0, |sum, (_, bytes)| sum.wrapping_add(*bytes))
    }
}

/// Tells resident pages; tests put something else in place of /proc/PID/pagemap.
pub trait Residency {
    /// Resident pages of `count` pages from this address, a flag for each.
    fn pages(&self, address: u64, count: usize) -> Result<Vec<bool>, Fault>;
}

pub struct Pagemap(File, u64);

impl Pagemap {
    pub fn open(folder: &Path) -> Result<Pagemap, Fault> {
        let file = File::open(folder.join("pagemap")).map_err(|error| Fault::of(&error))?;
        Ok(Pagemap(file, rustix::param::page_size() as u64))
    }
}

impl Residency for Pagemap {
    fn pages(&self, address: u64, count: usize) -> Result<Vec<bool>, Fault> {
        let mut entries = vec![0u8; 8 * count];
        let mut done = 0;
        while done < entries.len() {
            let at = (address / self.1).wrapping_mul(8).wrapping_add(done as u64);
            match self.0.read_at(&mut entries[done..], at) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(error) => return Err(Fault::of(&error)),
            }
        }
        Ok(entries.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()) & PRESENT != 0).collect())
    }
}

/// The ledger; None: the heap is too large to look at every page.
pub fn of(page: &Page, snapshot: &Snapshot, maps: &[Mapping], residency: &dyn Residency) -> Result<Option<Ledger>, Fault> {
    let (super_shift, slab_shift) = (page.super_shift()?, page.slab_shift()?);
    let (supers, window, metadata) = (page.supers()?, page.root("window")?, page.root("metadata")?);
    if slab_shift > super_shift || super_shift - slab_shift > 12 || supers > MOST_BYTES >> super_shift {
        return Ok(None);
    }
    let mut found = Ledger::default();
    let mut walk = Walk::new(page, snapshot.classes.len())?;
    let mut holes = Vec::new();
    let mut first = 0;
    while first < supers {
        let count = PIECE.min(supers - first) as usize;
        let kinds = page.kinds(first, count)?;
        holes.extend(kinds.iter().map(|&kind| kind == walk.hole));
        walk.piece(first, &kinds, residency, &mut found)?;
        first += count as u64;
    }
    for (class, &lying) in snapshot.classes.iter().zip(&walk.spans) {
        let cached = class.cached.wrapping_add(class.outbox).wrapping_mul(class.size);
        let held = class.live.wrapping_mul(class.size).wrapping_add(cached);
        let taken = held.min(lying);
        let of_caches = (u128::from(taken) * u128::from(cached)).checked_div(u128::from(held)).unwrap_or(0) as u64;
        let of_caches = of_caches.min(taken);
        found.cached = found.cached.wrapping_add(of_caches);
        found.live = found.live.wrapping_add(taken - of_caches);
        found.free_in_slabs = found.free_in_slabs.wrapping_add(lying - taken);
        if class.live > 0 {
            found.pinned = found.pinned.wrapping_add(lying - taken);
            found.pinned_most = std::cmp::max_by_key(found.pinned_most, (class.size, lying - taken), |each| each.1);
        }
    }
    for mapping in maps {
        let place = mapping.start.wrapping_sub(window) >> super_shift;
        let in_window = mapping.start >= window && place < supers;
        if metadata <= mapping.start && mapping.start < window {
            found.metadata = found.metadata.wrapping_add(mapping.resident);
        } else if !in_window || holes.get(place as usize).copied().unwrap_or(false) {
            found.not_ours = found.not_ours.wrapping_add(mapping.resident);
        }
    }
    Ok(Some(found))
}

/// The way over all slabs, with what is known from the pieces before.
struct Walk<'a> {
    page: &'a Page<'a>,
    spans: Vec<u64>, // resident bytes by class
    in_slabs: u32,
    free: u32,
    huge: u32,
    huge_tail: u32,
    hole: u32,
    run_waits: bool,      // of the run of a huge block that the last SuperSlab belongs to
    class: Option<usize>, // of the span that the last slab belongs to
}

impl<'a> Walk<'a> {
    fn new(page: &'a Page<'a>, classes: usize) -> Result<Walk<'a>, Fault> {
        let kind = |name| page.number(name).map(|value| value as u32);
        Ok(Walk {
            page,
            spans: vec![0; classes],
            in_slabs: kind("kind_in_slabs")?,
            free: kind("kind_free")?,
            huge: kind("kind_huge")?,
            huge_tail: kind("kind_huge_tail")?,
            hole: kind("kind_hole")?,
            run_waits: false,
            class: None,
        })
    }

    fn piece(&mut self, first: u64, kinds: &[u32], residency: &dyn Residency, found: &mut Ledger) -> Result<(), Fault> {
        let (super_shift, slab_shift) = (self.page.super_shift()?, self.page.slab_shift()?);
        let (page_size, per_super) = (rustix::param::page_size() as u64, 1usize << (super_shift - slab_shift));
        let owners = self.page.owners(first << (super_shift - slab_shift), kinds.len() * per_super)?;
        let per_slab = ((1u64 << slab_shift) / page_size).max(1) as usize;
        for (i, &kind) in kinds.iter().enumerate() {
            let owners = &owners[i * per_super..(i + 1) * per_super];
            if kind == self.huge {
                // The first slab of a run tells whether it holds a live block or waits for the thread that freed it.
                self.run_waits = owners[0] == 0;
            }
            if kind == self.hole {
                continue;
            }
            let start = self.page.root("window")?.wrapping_add((first + i as u64) << super_shift);
            let pages = residency.pages(start, per_slab * per_super)?;
            for (slab, &owner) in owners.iter().enumerate() {
                let lying = pages.iter().skip(slab * per_slab).take(per_slab).filter(|&&is| is).count() as u64 * page_size;
                self.slab(kind, owner, lying, found)?;
            }
        }
        Ok(())
    }

    fn slab(&mut self, kind: u32, owner: u32, lying: u64, found: &mut Ledger) -> Result<(), Fault> {
        if owner == 0 {
            self.class = None;
        } else {
            // The inner slabs of a single-block span have a code of their own, and belong to the slab before them.
            let class = self.page.class_of(owner)?;
            self.class = if class < self.spans.len() { Some(class) } else { self.class };
        }
        let into = if kind == self.in_slabs {
            match self.class {
                Some(class) => &mut self.spans[class],
                None => &mut found.empty,
            }
        } else if kind == self.huge || kind == self.huge_tail {
            if self.run_waits {
                &mut found.empty
            } else {
                &mut found.huge
            }
        } else if kind == self.free {
            &mut found.empty
        } else {
            return Ok(());
        };
        *into = into.wrapping_add(lying);
        Ok(())
    }
}
