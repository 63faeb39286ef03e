//! HAKMEM in a process, read from outside through its live page (include/hakmem_live.h). The page itself says where the counters
//! lie; this file knows only the rules by which some figures follow from others (docs/statistics.md).
//!
//! The page belongs to another program and may be damaged: every number from it is bounded before it is used, sums wrap, and what
//! is read for one process is bounded by `MOST_BYTES`.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::memory::{printable, Fault, Memory};

pub const MAGIC: u32 = 0x4c4b_4148;
pub const VERSION: u32 = 1;
/// Bytes read of one process in one look.
const MOST_BYTES: u64 = 256 << 20;
const MOST_TABLES: u32 = 1 << 20;
const MOST_CLASSES: usize = 1024;
const MOST_USER_HEAPS: usize = 1000;
const NAME: usize = 48;

const WORD: u32 = 1;
const HEAPS: u32 = 2;
const CLASS: u32 = 3;
const ALL: u32 = 8;

/// Where a figure comes from.
#[derive(Debug, Clone, Copy)]
struct Place {
    kind: u32,
    root: usize,
    offset: usize,
}

impl Place {
    fn of(word: u32) -> Place {
        Place { kind: word >> 28, root: (word >> 20 & 255) as usize, offset: (word & 0xf_ffff) as usize }
    }
}

/// A size class, summed over all heaps. Counts are blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Class {
    pub size: u64,
    pub refilled: u64,
    pub drained: u64,
    pub collected: u64,
    pub misses: u64,
    pub cached: u64,
    pub outbox: u64,
    pub mallocs: u64,
    pub frees: u64,
    pub live: u64,
}

/// An option whose value in force is not its standard one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub name: String,
    pub value: u64,
    pub origin: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserHeap {
    pub name: String,
    pub figures: BTreeMap<&'static str, u64>,
}

/// All figures at one moment, by the names of struct hak_stats.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub version: String,
    pub figures: BTreeMap<String, u64>,
    pub classes: Vec<Class>,
    pub heaps: Vec<UserHeap>,
    pub settings: Vec<Setting>,
    pub profiled: bool,
}

/// The live page of one process.
pub struct Page<'a> {
    memory: &'a dyn Memory,
    left: Cell<u64>,
    roots: Vec<u64>,
    root: HashMap<String, u64>,
    number: HashMap<String, u32>,
    figures: Vec<(String, Place)>,
    columns: HashMap<String, Place>,
    origins: Vec<String>,
    pub version: String,
}

fn word_at(content: &[u8], at: usize) -> Result<u64, Fault> {
    let bytes = content.get(at..at.saturating_add(8)).ok_or(Fault::Damaged("a word outside of its structure"))?;
    Ok(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
}

fn half_at(content: &[u8], at: usize) -> Result<u32, Fault> {
    let bytes = content.get(at..at.saturating_add(4)).ok_or(Fault::Damaged("a word outside of its structure"))?;
    Ok(u32::from_ne_bytes(bytes.try_into().unwrap_or_default()))
}

fn quarter_at(content: &[u8], at: usize) -> Result<u64, Fault> {
    let bytes = content.get(at..at.saturating_add(2)).ok_or(Fault::Damaged("a word outside of its structure"))?;
    Ok(u64::from(u16::from_ne_bytes(bytes.try_into().unwrap_or_default())))
}

/// The lists of struct hak_live_tables.
struct Lists(Vec<u8>);

impl Lists {
    fn row(&self, list: usize) -> Result<(usize, usize, usize), Fault> {
        let at = 8 + 12 * list;
        let count = half_at(&self.0, at)? as usize;
        if count > self.0.len() {
            return Err(Fault::Damaged("a list longer than the tables"));
        }
        Ok((count, half_at(&self.0, at + 4)? as usize, half_at(&self.0, at + 8)? as usize))
    }

    fn names(&self, list: usize) -> Result<Vec<String>, Fault> {
        let (count, at, _) = self.row(list)?;
        let text = self.0.get(at..).ok_or(Fault::Damaged("names outside of the tables"))?;
        Ok(text.split(|&byte| byte == 0).take(count).map(printable).collect())
    }

    fn values(&self, list: usize) -> Result<Vec<(String, u32)>, Fault> {
        let (_, _, at) = self.row(list)?;
        let each = |(i, name)| Ok((name, half_at(&self.0, at.saturating_add(4 * i))?));
        self.names(list)?.into_iter().enumerate().map(each).collect()
    }
}

impl<'a> Page<'a> {
    /// Reads what `hak_live` at this address leads to.
    pub fn at(memory: &'a dyn Memory, address: u64) -> Result<Page<'a>, Fault> {
        let (magic, version) = (memory.half(address)?, memory.half(address.wrapping_add(4))?);
        match (magic, version) {
            (MAGIC, VERSION) => {}
            (MAGIC, other) => return Err(Fault::OtherVersion(other)),
            (0, _) => return Err(Fault::NotStarted),
            _ => return Err(Fault::Damaged("no magic number")),
        }
        let size = memory.half(address.wrapping_add(8))?;
        let count = memory.half(address.wrapping_add(12))?.min(size.saturating_sub(16) / 8).min(256);
        let bytes = memory.bytes(address.wrapping_add(16), 8 * count as usize)?;
        let roots: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect();
        let tables = *roots.first().ok_or(Fault::Damaged("no roots"))?;
        let (size, lists) = (memory.half(tables)?, memory.half(tables.wrapping_add(4))?);
        if size > MOST_TABLES || lists <= 8 {
            return Err(Fault::Damaged("tables of an impossible size"));
        }
        let lists = Lists(memory.bytes(tables, size as usize)?);
        let places = |list| Ok(lists.values(list)?.into_iter().map(|(name, word)| (name, Place::of(word))));
        let mut page = Page {
            memory,
            left: Cell::new(MOST_BYTES),
            root: lists.names(0)?.into_iter().zip(roots.iter().copied()).collect(),
            number: lists.values(1)?.into_iter().collect(),
            figures: places(2)?.collect(),
            columns: places(3)?.collect(),
            origins: lists.names(5)?,
            roots,
            version: String::new(),
        };
        page.version = memory.text(page.root("version")?)?;
        Ok(page)
    }

    pub fn root(&self, name: &str) -> Result<u64, Fault> {
        self.root.get(name).copied().ok_or(Fault::Damaged("a root is missing"))
    }

    pub fn number(&self, name: &str) -> Result<usize, Fault> {
        self.number.get(name).map(|&value| value as usize).ok_or(Fault::Damaged("a number is missing"))
    }

    fn shift(&self, name: &str) -> Result<u32, Fault> {
        match self.number(name)? {
            value @ 1..=40 => Ok(value as u32),
            _ => Err(Fault::Damaged("an impossible size of slabs")),
        }
    }

    /// Reads within the bound for one process.
    fn bytes(&self, address: u64, size: usize) -> Result<Vec<u8>, Fault> {
        let left = self.left.get();
        if size as u64 > left {
            return Err(Fault::Damaged("more to read than a heap can have"));
        }
        self.left.set(left - size as u64);
        self.memory.bytes(address, size)
    }

    fn word(&self, name: &str) -> Result<u64, Fault> {
        self.memory.word(self.root(name)?)
    }

    /// Whether a heap profile is on, not only a tracer's.
    pub fn is_profiled(&self) -> Result<bool, Fault> {
        let at = self.root("profile")?.wrapping_add(self.number("profile_counts")? as u64);
        let asked = self.number.get("profile_asked").copied().unwrap_or(1);
        Ok(self.memory.half(at)? & asked != 0)
    }

    /// A word of the sums over live samples: blocks, then bytes. They are in no class.
    fn sampled(&self, offset: u64) -> Result<u64, Fault> {
        self.root.get("sampled").map_or(Ok(0), |root| self.memory.word(root.wrapping_add(offset)))
    }

    /// SuperSlabs that the heap has reached so far.
    pub fn supers(&self) -> Result<u64, Fault> {
        self.word("frontier")
    }

    fn class_count(&self) -> Result<usize, Fault> {
        match self.number("class_count")? {
            count @ 1..=MOST_CLASSES => Ok(count),
            _ => Err(Fault::Damaged("an impossible number of size classes")),
        }
    }

    fn class_sizes(&self) -> Result<Vec<u64>, Fault> {
        let (count, stride, at) = (self.class_count()?, self.number("class_stride")?, self.number("class_size")?);
        if stride > 4096 {
            return Err(Fault::Damaged("size classes of an impossible size"));
        }
        let table = self.bytes(self.root("classes")?, count * stride)?;
        (0..count).map(|i| half_at(&table, (i * stride).saturating_add(at)).map(u64::from)).collect()
    }

    /// The figures of kernel and ledger are not among these.
    pub fn snapshot(&self) -> Result<Snapshot, Fault> {
        let sizes = self.class_sizes()?;
        let mut classes: Vec<Class> = sizes.iter().map(|&size| Class { size, ..Class::default() }).collect();
        let mut of_heaps: HashMap<usize, u64> = HashMap::new();
        let summed = |place: &Place| matches!(place.kind, HEAPS | ALL);
        let (mut heaps, mut parked, mut slabs) = (0u64, 0u64, 0u64);
        let last = self.memory.half(self.root("heap_last")?)?;
        for i in 1..=u64::from(last) {
            let at = self.root("heaps")?.wrapping_add(i.wrapping_mul(self.number("heap_stride")? as u64));
            let state = self.memory.half(at.wrapping_add(self.number("heap_state")? as u64))?;
            if state == 0 {
                // Damaged tables could name four thousand million such heaps.
                self.left.set(self.left.get().checked_sub(64).ok_or(Fault::Damaged("too many heaps"))?);
                continue;
            }
            let heap = self.bytes(at, self.number("heap_size")?)?;
            heaps += 1;
            parked += u64::from(u64::from(state) == self.number("state_parked")? as u64);
            slabs = slabs.wrapping_add(word_at(&heap, self.number("heap_slab_count")?)?);
            for (_, place) in self.figures.iter().filter(|(_, place)| summed(place)) {
                let sum = of_heaps.entry(place.offset).or_default();
                *sum = sum.wrapping_add(word_at(&heap, place.offset)?);
            }
            self.add_classes(&heap, &mut classes)?;
        }
        for class in &mut classes {
            let gone = class.drained.wrapping_add(class.collected).wrapping_add(class.cached).wrapping_add(class.outbox);
            // A figure below 0 is one that moved while it was read.
            class.live = Some(class.refilled.wrapping_sub(gone)).filter(|&live| live as i64 >= 0).unwrap_or(0);
        }
        let mut figures = BTreeMap::new();
        for (name, place) in &self.figures {
            let root = || {
                let root = *self.roots.get(place.root).ok_or(Fault::Damaged("a figure without a root"))?;
                Ok::<u64, Fault>(root)
            };
            let value = match place.kind {
                WORD => self.memory.word(root()?.wrapping_add(place.offset as u64))?,
                HEAPS => of_heaps.get(&place.offset).copied().unwrap_or(0),
                ALL => of_heaps.get(&place.offset).copied().unwrap_or(0).wrapping_add(self.memory.word(root()?)?),
                _ => continue,
            };
            figures.insert(name.clone(), value);
        }
        let sum = |of: &dyn Fn(&Class) -> u64| classes.iter().fold(0u64, |sum, class| sum.wrapping_add(of(class)));
        let by_rule = [
            ("remote_heaps", heaps),
            ("remote_parked", parked),
            ("bytes_live", sum(&|class| class.live.wrapping_mul(class.size)).wrapping_add(self.sampled(8)?)),
            ("bytes_cached", sum(&|class| class.cached.wrapping_add(class.outbox).wrapping_mul(class.size))),
            ("bytes_spans", slabs.wrapping_shl(self.shift("slab_shift")?)),
            ("total_refilled", sum(&|class| class.refilled)),
            ("total_drained", sum(&|class| class.drained.wrapping_add(class.collected))),
            ("total_misses", sum(&|class| class.misses)),
            ("total_live", sum(&|class| class.live).wrapping_add(self.sampled(0)?)),
        ];
        figures.extend(by_rule.map(|(name, value)| (name.to_string(), value)));
        let huge = |name: &str| figures.get(name).copied().unwrap_or(0);
        let live = huge("huge_allocated").saturating_sub(huge("huge_freed"));
        figures.insert("huge_live".to_string(), live);
        Ok(Snapshot {
            version: self.version.clone(),
            figures,
            classes,
            heaps: self.user_heaps(&sizes)?,
            settings: self.settings()?,
            profiled: self.is_profiled()?,
        })
    }

    /// Adds one heap's counters to the classes.
    fn add_classes(&self, heap: &[u8], classes: &mut [Class]) -> Result<(), Fault> {
        let n = |name| self.number(name);
        let (rows, stride) = (n("heap_classes")?, n("heap_class_stride")?);
        for (i, class) in classes.iter_mut().enumerate() {
            let row = rows.saturating_add(i.saturating_mul(stride));
            for (name, into) in [
                ("refilled", &mut class.refilled),
                ("drained", &mut class.drained),
                ("collected", &mut class.collected),
                ("misses", &mut class.misses),
                ("mallocs", &mut class.mallocs),
                ("frees", &mut class.frees),
            ] {
                if let Some(place) = self.columns.get(name).filter(|place| place.kind == CLASS) {
                    *into = into.wrapping_add(word_at(heap, row.saturating_add(place.offset))?);
                }
            }
            // Blocks in the bin: top - bottom of the real one, which a closed bin hides.
            let closed = heap.get(n("heap_closed")?.saturating_add(i)).copied().unwrap_or(0) != 0;
            let visible = n("heap_bins")?.saturating_add(n("bin_top")?).saturating_add(i.saturating_mul(n("bin_stride")?));
            let hidden = row.saturating_add(n("heap_class_hidden")?).saturating_add(n("bin_top")?);
            let top = word_at(heap, if closed { hidden } else { visible })?;
            let bottom = word_at(heap, row.saturating_add(n("heap_class_bottom")?))?;
            let ceiling = quarter_at(heap, row.saturating_add(n("heap_class_ceiling")?))?;
            let count = top.wrapping_sub(bottom) / 8;
            if bottom != 0 && count <= ceiling {
                class.cached = class.cached.wrapping_add(count);
            }
        }
        self.add_outbox(heap, classes)?;
        self.add_quarantine(heap, classes)
    }

    /// The class of the slab's owner word.
    fn class_of_slab(&self, slab: u64) -> Result<usize, Fault> {
        let at = slab.wrapping_mul(self.number("map_stride")? as u64).wrapping_add(self.number("map_owner")? as u64);
        self.class_of(self.memory.half(self.root("map")?.wrapping_add(at))?)
    }

    pub fn class_of(&self, owner: u32) -> Result<usize, Fault> {
        let mask = 1u64.checked_shl(self.number("class_offset_bits")? as u32).unwrap_or(0).wrapping_sub(1);
        (owner as u64 & mask)
            .checked_div(self.number("class_offset_unit")? as u64)
            .map(|class| class as usize)
            .ok_or(Fault::Damaged("class offsets of no bytes"))
    }

    fn add_outbox(&self, heap: &[u8], classes: &mut [Class]) -> Result<(), Fault> {
        let (first, stride) = (self.number("heap_outbox")?, self.number("bucket_stride")?);
        for i in 0..self.number("bucket_count")?.min(4096) {
            let at = first.saturating_add(i.saturating_mul(stride));
            let slab = half_at(heap, at.saturating_add(self.number("bucket_slab")?))?;
            if slab == 0 {
                continue;
            }
            let blocks = quarter_at(heap, at.saturating_add(self.number("bucket_blocks")?))?;
            let taken = quarter_at(heap, at.saturating_add(self.number("bucket_taken")?))?;
            if let Some(class) = classes.get_mut(self.class_of_slab(u64::from(slab) - 1)?) {
                class.outbox = class.outbox.wrapping_add(blocks.saturating_sub(taken));
            }
        }
        Ok(())
    }

    /// Hardened mode: blocks that wait before they are used again count as cached.
    fn add_quarantine(&self, heap: &[u8], classes: &mut [Class]) -> Result<(), Fault> {
        let Ok(place) = self.number("heap_quarantine") else { return Ok(()) };
        let at = word_at(heap, place)?;
        if at == 0 {
            return Ok(());
        }
        let slab_shift = self.shift("slab_shift")?;
        let slabs = self.supers()?.wrapping_shl(self.shift("super_shift")?.wrapping_sub(slab_shift));
        for (place, count) in [("quarantine_mixed", "quarantine_mixed_count"), ("quarantine_queue", "quarantine_queue_count")] {
            let count = self.number(count)?.min(1 << 16);
            let blocks = self.bytes(at.wrapping_add(self.number(place)? as u64), 8 * count)?;
            for block in blocks.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())) {
                let slab = block.wrapping_sub(self.root("window")?) >> slab_shift;
                if block == 0 || slab >= slabs {
                    continue;
                }
                if let Some(class) = classes.get_mut(self.class_of_slab(slab)?) {
                    class.cached = class.cached.wrapping_add(1);
                }
            }
        }
        Ok(())
    }

    /// Options that are not at their standard value, with the word of the value's origin.
    fn settings(&self) -> Result<Vec<Setting>, Fault> {
        let (count, stride) = (self.number("option_count")?.min(1024), self.number("option_stride")?.min(4096));
        let rows = self.bytes(self.root("option_rows")?, count * stride)?;
        let words = self.bytes(self.root("option_words")?, 8 * count)?;
        let shift = self.number("origin_shift")?.clamp(1, 63) as u32;
        let mut found = Vec::new();
        for i in 0..count {
            let word = word_at(&words, 8 * i)?;
            let field = |name: &str| Ok::<usize, Fault>(i * stride + self.number(name)?);
            let (value, standard) = (word & ((1 << shift) - 1), word_at(&rows, field("option_value")?)?);
            if value != standard {
                let name = quarter_at(&rows, field("option_name")?)?;
                let name = self.memory.text(self.root("option_text")?.wrapping_add(name))?;
                let origin = self.origins.get((word >> shift) as usize).cloned().unwrap_or_default();
                found.push(Setting { name, value, origin });
            }
        }
        Ok(found)
    }

    /// Every user heap outside of regions, whose memory is not the library's.
    fn user_heaps(&self, sizes: &[u64]) -> Result<Vec<UserHeap>, Fault> {
        let Ok(first) = self.root("owns") else { return Ok(Vec::new()) };
        let (mut own, mut seen, mut found) = (self.memory.word(first)?, HashSet::new(), Vec::new());
        while own != 0 && seen.insert(own) && found.len() < MOST_USER_HEAPS {
            let content = self.bytes(own, self.number("own_size")?)?;
            let field = |name: &str| word_at(&content, self.number(name)?);
            if half_at(&content, 0)? as usize == self.number("own_alive")? {
                let name = content.get(self.number("own_name")?..).unwrap_or(&[]);
                let name = name.get(..NAME).unwrap_or(name).split(|&byte| byte == 0).next().unwrap_or(&[]);
                let (live, cached) = self.of_shares(field("own_shares")?, sizes)?;
                let limit = field("own_limit")?;
                let figures = [
                    ("used_bytes", field("own_used")?),
                    ("peak_bytes", field("own_peak")?),
                    ("live_bytes", live.wrapping_add(field("own_huge_bytes")?)),
                    ("cached_bytes", cached),
                    ("limit", if limit == u64::MAX { 0 } else { limit }),
                    ("refused", field("own_refused")?),
                ];
                found.push(UserHeap { name: printable(name), figures: figures.into_iter().collect() });
            }
            own = field("own_next")?;
        }
        Ok(found)
    }

    /// (bytes of live blocks, of cached blocks) of all of a user heap's shares.
    fn of_shares(&self, first: u64, sizes: &[u64]) -> Result<(u64, u64), Fault> {
        let (mut share, mut seen, mut totals) = (first, HashSet::new(), (0u64, 0u64));
        while share != 0 && seen.insert(share) {
            let content = self.bytes(share, self.number("heap_size")?)?;
            let mut classes = vec![Class::default(); sizes.len()];
            self.add_classes(&content, &mut classes)?;
            for (class, &size) in classes.iter().zip(sizes) {
                let gone = class.drained.wrapping_add(class.collected).wrapping_add(class.cached);
                totals.0 = totals.0.wrapping_add(class.refilled.saturating_sub(gone).wrapping_mul(size));
                totals.1 = totals.1.wrapping_add(class.cached.wrapping_mul(size));
            }
            share = word_at(&content, self.number("heap_next_share")?)?;
        }
        Ok(totals)
    }

    /// The owner words of all slabs, piece by piece.
    pub fn owners(&self, first: u64, count: usize) -> Result<Vec<u32>, Fault> {
        let (stride, at) = (self.number("map_stride")?, self.number("map_owner")?);
        if stride == 0 || stride > 4096 {
            return Err(Fault::Damaged("an owner map of an impossible size"));
        }
        let start = self.root("map")?.wrapping_add(first.wrapping_mul(stride as u64));
        let rows = self.bytes(start, count * stride)?;
        (0..count).map(|i| half_at(&rows, i * stride + at)).collect()
    }

    /// The kinds of SuperSlabs.
    pub fn kinds(&self, first: u64, count: usize) -> Result<Vec<u32>, Fault> {
        let (stride, at) = (self.number("super_stride")?, self.number("super_kind")?);
        if stride == 0 || stride > 4096 {
            return Err(Fault::Damaged("a table of SuperSlabs of an impossible size"));
        }
        let start = self.root("supers")?.wrapping_add(first.wrapping_mul(stride as u64));
        let rows = self.bytes(start, count * stride)?;
        (0..count).map(|i| half_at(&rows, i * stride + at)).collect()
    }

    pub fn super_shift(&self) -> Result<u32, Fault> {
        self.shift("super_shift")
    }

    pub fn slab_shift(&self) -> Result<u32, Fault> {
        self.shift("slab_shift")
    }
}
