//! Where the library's file has its symbol `hak_live`. Files are parsed once: most processes of a host share them.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use object::read::elf::{FileHeader, ProgramHeader};
use object::read::ReadCache;
use object::{elf, Endianness, Object, ObjectSymbol, ReadRef};

use crate::process::Mapping;

const SYMBOL: &[u8] = b"hak_live";
/// Files kept in the cache; beyond them it starts again.
const MOST_FILES: usize = 4096;
const FORGET: Duration = Duration::from_secs(600);

/// A loadable segment: where it lies in the file and in the file's own addresses.
type Segment = (u64, u64, u64); // offset, bytes, address

/// What is needed of an ELF file.
#[derive(Debug)]
pub struct Image {
    symbol: Option<u64>,
    segments: Vec<Segment>,
    /// In hexadecimal; empty if the file has none.
    pub build_id: String,
}

impl Image {
    pub fn of(path: &Path) -> Option<Image> {
        parse(File::open(path).ok()?)
    }

    /// The file's own address of what lies at this offset.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let within = |&&(start, bytes, _): &&Segment| start <= offset && offset < start.saturating_add(bytes);
        self.segments.iter().find(within).map(|&(start, _, address)| offset - start + address)
    }

    /// Where the symbol lies if the part of the file at `mapping.offset` is mapped there.
    pub fn symbol_in(&self, mapping: &Mapping) -> Option<u64> {
        let page = rustix::param::page_size() as u64;
        // A page of the file can hold the end of one segment and the start of the next, whose mapping then begins there.
        let within = |&&(offset, bytes, _): &&Segment| {
            offset / page * page <= mapping.offset && mapping.offset < offset.saturating_add(bytes)
        };
        let &(offset, _, address) = self.segments.iter().rfind(within)?;
        let bias = mapping.start.wrapping_sub(mapping.offset).wrapping_sub(address.wrapping_sub(offset));
        Some(bias.wrapping_add(self.symbol?))
    }
}

/// What is known of files, by their device, inode and path. It is forgotten every few minutes, lest a file that took the place of
/// another one with the same inode be taken for it.
pub struct Files(Mutex<Known>);

struct Known {
    since: Instant,
    files: HashMap<(String, u64, String), Option<Arc<Image>>>,
}

impl Default for Files {
    fn default() -> Self {
        Files(Mutex::new(Known { since: Instant::now(), files: HashMap::new() }))
    }
}

impl Files {
    /// The library in the file of a process's mapping, if it has the symbol.
    pub fn image_of(&self, folder: &Path, mapping: &Mapping) -> Option<Arc<Image>> {
        let key = (mapping.device.clone(), mapping.inode, mapping.path.clone());
        if let Some(found) = self.0.lock().ok()?.files.get(&key) {
            return found.clone();
        }
        // Something else may have taken the file's place, such as a pipe, on which an open would block.
        let path = opened(folder, mapping);
        let image = if path.metadata().ok()?.is_file() { Image::of(&path) } else { None };
        let found = image.filter(|image| image.symbol.is_some()).map(Arc::new);
        let mut known = self.0.lock().ok()?;
        if known.files.len() >= MOST_FILES || known.since.elapsed() > FORGET {
            *known = Known { since: Instant::now(), files: HashMap::new() };
        }
        known.files.insert(key, found.clone());
        found
    }
}

fn parse(file: File) -> Option<Image> {
    let cache = ReadCache::new(file);
    let head: [u8; 5] = (&cache).read_bytes_at(0, 5).ok()?.try_into().ok()?;
    match head {
        [0x7f, b'E', b'L', b'F', 2] => parse_as::<elf::FileHeader64<Endianness>, _>(&cache),
        [0x7f, b'E', b'L', b'F', 1] => parse_as::<elf::FileHeader32<Endianness>, _>(&cache),
        _ => None,
    }
}

fn parse_as<'a, Elf, R>(data: R) -> Option<Image>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let file = object::read::elf::ElfFile::<Elf, R>::parse(data).ok()?;
    let named = |symbol: &object::read::elf::ElfSymbol<'a, '_, Elf, R>| {
        !symbol.is_undefined() && symbol.name_bytes().is_ok_and(|name| name == SYMBOL)
    };
    let found = file.dynamic_symbols().find(named).or_else(|| file.symbols().find(named));
    let symbol = found.map(|found| found.address());
    let build_id = file.build_id().ok().flatten().unwrap_or(&[]).iter().map(|byte| format!("{byte:02x}")).collect();
    let endian = file.endian();
    let segments = file
        .elf_program_headers()
        .iter()
        .filter(|each| each.p_type(endian) == elf::PT_LOAD)
        .map(|each| (each.p_offset(endian).into(), each.p_filesz(endian).into(), each.p_vaddr(endian).into()))
        .collect();
    Some(Image { symbol, segments, build_id })
}

/// The mapped file itself, also if it was deleted or lies in a container, as far as the kernel gives access to it.
pub fn opened(folder: &Path, mapping: &Mapping) -> PathBuf {
    let itself = folder.join("map_files").join(format!("{:x}-{:x}", mapping.start, mapping.end));
    if File::open(&itself).is_ok() {
        return itself;
    }
    let path = mapping.path.trim_end_matches(" (deleted)").trim_start_matches('/');
    folder.join("root").join(path)
}
