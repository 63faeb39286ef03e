//! The options, each with the type of its values.
//!
//! ```
//! use core::time::Duration;
//! use hakmem::options;
//!
//! options::PURGE_DELAY.set(Duration::from_millis(250))?;
//! assert_eq!(options::PURGE_DELAY.get(), Ok(Duration::from_millis(250)));
//! options::LIMIT.set(hakmem::options::Bytes(2 << 30))?;
//! options::BACKGROUND.set("0")?;
//! options::PROFILE_EVERY.set("64M")?;
//! # Ok::<(), hakmem::Error>(())
//! ```
//!
//! An option that only takes effect at start answers [`Error`] 1 (`EPERM`): set its variable, `HAKMEM_` and the name in capitals.

use core::ffi::{c_char, CStr};
use core::fmt::{self, Write};
use core::marker::PhantomData;
use core::time::Duration;

use crate::{sys, Error};

pub use crate::names::*;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Values that are words, such as `auto`, or of several kinds, such as `60s` or `64M`.
#[derive(Clone, Copy, Debug)]
pub struct Word;

/// One option whose values are of type `T`.
#[derive(Clone, Copy, Debug)]
pub struct Setting<T> {
    name: &'static str, // ends in a NUL
    of: PhantomData<T>,
}

/// A short C text that is written to piece by piece; what does not fit is an error.
struct Text {
    bytes: [u8; 128],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let end = self.length + piece.len();
        // The last byte stays 0.
        if end >= self.bytes.len() {
            return Err(fmt::Error);
        }
        self.bytes[self.length..end].copy_from_slice(piece.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// `EINVAL`.
const WRONG_VALUE: Error = Error(22);

impl<T> Setting<T> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Setting { name, of: PhantomData }
    }

    fn c_name(&self) -> *const c_char {
        self.name.as_ptr().cast()
    }

    /// The name, as `HAKMEM_CONF` has it.
    pub fn name(&self) -> &'static str {
        &self.name[..self.name.len() - 1]
    }

    fn write(&self, value: fmt::Arguments<'_>) -> Result<(), Error> {
        let mut text = Text { bytes: [0; 128], length: 0 };
        text.write_fmt(value).map_err(|_| WRONG_VALUE)?;
        // SAFETY: both texts end in a NUL.
        match unsafe { sys::hak_option_set(self.c_name(), text.bytes.as_ptr().cast()) } {
            0 => Ok(()),
            number => Err(Error(number)),
        }
    }

    fn read(&self) -> Result<u64, Error> {
        let mut value = 0;
        // SAFETY: the name ends in a NUL, and `value` outlives the call.
        match unsafe { sys::hak_option_get(self.c_name(), &mut value) } {
            0 => Ok(value),
            number => Err(Error(number)),
        }
    }

    /// Where the value in force comes from: `api`, `variable`, `conf`, `symbol`, `preset`, `system` or `default`.
    pub fn origin(&self) -> &'static str {
        // SAFETY: the name ends in a NUL; the answer is null or a constant text.
        let found = unsafe { sys::hak_option_origin(self.c_name()) };
        if found.is_null() {
            return "";
        }
        unsafe { CStr::from_ptr(found) }.to_str().unwrap_or("")
    }
}

impl Setting<u64> {
    pub fn set(&self, value: u64) -> Result<(), Error> {
        self.write(format_args!("{value}"))
    }
    pub fn get(&self) -> Result<u64, Error> {
        self.read()
    }
}

impl Setting<bool> {
    pub fn set(&self, value: bool) -> Result<(), Error> {
        self.write(format_args!("{}", u8::from(value)))
    }
    pub fn get(&self) -> Result<bool, Error> {
        self.read().map(|value| value != 0)
    }
}

impl Setting<Bytes> {
    pub fn set(&self, value: Bytes) -> Result<(), Error> {
        self.write(format_args!("{}", value.0))
    }
    pub fn get(&self) -> Result<Bytes, Error> {
        self.read().map(Bytes)
    }
}

impl Setting<Duration> {
    /// In whole milliseconds.
    pub fn set(&self, value: Duration) -> Result<(), Error> {
        self.write(format_args!("{}ms", value.as_millis()))
    }
    pub fn get(&self) -> Result<Duration, Error> {
        self.read().map(Duration::from_millis)
    }
}

impl Setting<Word> {
    pub fn set(&self, value: &str) -> Result<(), Error> {
        if value.contains('\0') {
            return Err(WRONG_VALUE);
        }
        self.write(format_args!("{value}"))
    }
    /// The value's number; `docs/options.md` has the words.
    pub fn get(&self) -> Result<u64, Error> {
        self.read()
    }
}

// What calls no C, for Miri as well: cargo +nightly miri test --lib.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_nul() {
        let mut text = Text { bytes: [0; 128], length: 0 };
        write!(text, "{}ms", 250).unwrap();
        assert_eq!(&text.bytes[..6], b"250ms\0");
        for _ in 0..122 {
            text.write_str("x").unwrap();
        }
        assert_eq!(text.write_str("x"), Err(fmt::Error));
        assert_eq!((text.length, text.bytes[127]), (127, 0));
    }

    #[test]
    fn names_end_once() {
        assert_eq!(PURGE_DELAY.name(), "purge_delay");
        // SAFETY: c_name is valid for the static text, which ends in a NUL.
        assert_eq!(unsafe { CStr::from_ptr(PURGE_DELAY.c_name()) }.to_str(), Ok("purge_delay"));
    }
}
