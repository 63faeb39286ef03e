//! Reads another process's memory while it runs: /proc/PID/mem, which stops nothing. An open file belongs to the program that ran
//! when it was opened: after an exec or the process's end it yields nothing, never another program's bytes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Why a process could not be read. Nothing here stops a scrape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It has ended, or runs another program now.
    Ended,
    /// The kernel forbids it.
    Forbidden,
    /// It does not run on HAKMEM.
    NotHakmem,
    /// The library is loaded, but has not started.
    NotStarted,
    /// Its live page has this version.
    OtherVersion(u32),
    /// Its live page contradicts itself.
    Damaged(&'static str),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Ended => write!(f, "it has ended"),
            Fault::Forbidden => write!(f, "the kernel forbids to read it: run the exporter as root or with CAP_SYS_PTRACE"),
            Fault::NotHakmem => write!(f, "it does not run on HAKMEM"),
            Fault::NotStarted => write!(f, "its HAKMEM has not started yet"),
            Fault::OtherVersion(found) => {
                write!(f, "its live page has version {found}; this exporter reads {}", crate::live::VERSION)
            }
            Fault::Damaged(what) => write!(f, "its live page is damaged: {what}"),
        }
    }
}

impl Fault {
    /// A word for a label.
    pub fn word(&self) -> &'static str {
        match self {
            Fault::Ended => "ended",
            Fault::Forbidden => "forbidden",
            Fault::NotHakmem => "not_hakmem",
            Fault::NotStarted => "not_started",
            Fault::OtherVersion(_) => "other_version",
            Fault::Damaged(_) => "damaged",
        }
    }

    pub fn of(error: &io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Fault::Forbidden,
            _ => Fault::Ended,
        }
    }
}

/// The memory of a process; tests put a damaged one in its place.
pub trait Memory {
    /// Fills the buffer from this address, or fails.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault>;

    fn bytes(&self, address: u64, size: usize) -> Result<Vec<u8>, Fault> {
        let mut found = vec![0; size];
        self.read(address, &mut found)?;
        Ok(found)
    }

    fn word(&self, address: u64) -> Result<u64, Fault> {
        let mut found = [0; 8];
        self.read(address, &mut found)?;
        Ok(u64::from_ne_bytes(found))
    }

    fn half(&self, address: u64) -> Result<u32, Fault> {
        let mut found = [0; 4];
        self.read(address, &mut found)?;
        Ok(u32::from_ne_bytes(found))
    }

    /// A text up to its NUL, of at most 255 bytes, in ASCII.
    fn text(&self, address: u64) -> Result<String, Fault> {
        let mut found = Vec::new();
        let mut at = address;
        while found.len() < 255 {
            // Not beyond a boundary of 64 bytes: the next page may not exist.
            let size = (64 - at % 64) as usize;
            let piece = self.bytes(at, size)?;
            if let Some(end) = piece.iter().position(|&byte| byte == 0) {
                found.extend_from_slice(&piece[..end]);
                break;
            }
            found.extend_from_slice(&piece);
            at = at.wrapping_add(size as u64);
        }
        found.truncate(255);
        Ok(printable(&found))
    }
}

/// A text of another process for a label: each control character, and each byte that is no UTF-8, becomes a question mark.
pub fn printable(text: &[u8]) -> String {
    let mut found = String::new();
    for chunk in text.utf8_chunks() {
        found.extend(chunk.valid().chars().map(|c| if c.is_control() { '?' } else { c }));
        found.extend(chunk.invalid().iter().map(|_| '?'));
    }
    found
}

/// The memory of a running process.
pub struct Running(File);

impl Running {
    pub fn open(folder: &Path) -> Result<Running, Fault> {
        File::open(folder.join("mem")).map(Running).map_err(|error| Fault::of(&error))
    }

    /// May also be written to, which only a profile's request does.
    pub fn open_to_write(folder: &Path) -> Result<Running, Fault> {
        let file = OpenOptions::new().read(true).write(true).open(folder.join("mem"));
        file.map(Running).map_err(|error| Fault::of(&error))
    }

    pub fn write(&self, address: u64, content: &[u8]) -> Result<(), Fault> {
        self.0.write_all_at(content, address).map_err(|_| Fault::Ended)
    }
}

impl Memory for Running {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        // Addresses above the signed range are none of a program's.
        if address > i64::MAX as u64 {
            return Err(Fault::Damaged("an address outside of the process"));
        }
        match self.0.read_exact_at(into, address) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Fault::Ended),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Fault::Forbidden),
            Err(_) => Err(Fault::Damaged("an address without memory")),
        }
    }
}
