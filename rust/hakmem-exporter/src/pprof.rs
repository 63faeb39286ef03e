//! A profile in pprof's format (profile.proto), with the names and types that Go's heap profiles have, which Pyroscope and Parca
//! expect of `/debug/pprof/heap` and `/debug/pprof/allocs`.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;
use std::path::Path;

use addr2line::Loader;
use flate2::{write::GzEncoder, Compression};
use prost::Message;

use crate::elf::{self, Image};
use crate::process::Mapping;
use crate::profile::{estimate, Dump};

/// The part of the schema that is written.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub kind: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub text: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub memory_limit: u64,
        #[prost(uint64, tag = "4")]
        pub file_offset: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(int64, tag = "6")]
        pub build_id: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
        #[prost(bool, tag = "8")]
        pub has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub has_line_numbers: bool,
        #[prost(bool, tag = "10")]
        pub has_inline_frames: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub time_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub period: i64,
        #[prost(int64, tag = "14")]
        pub default_sample_type: i64,
    }
}

/// Numbers things in the order in which they first appear.
struct Numbers<T>(HashMap<T, u64>);

impl<T: Eq + Hash> Numbers<T> {
    /// The number, and whether it is new; the first one is 1.
    fn of(&mut self, thing: T) -> (u64, bool) {
        let next = self.0.len() as u64 + 1;
        let number = *self.0.entry(thing).or_insert(next);
        (number, number == next)
    }
}

struct Builder {
    profile: proto::Profile,
    strings: HashMap<String, i64>,
    functions: Numbers<(String, String)>,
    locations: Numbers<u64>,
}

impl Builder {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.strings.get(text) {
            return number;
        }
        let number = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_string());
        self.strings.insert(text.to_string(), number);
        number
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType { kind: self.string(kind), unit: self.string(unit) }
    }

    fn line(&mut self, name: String, file: String, line: i64) -> proto::Line {
        let (id, new) = self.functions.of((name.clone(), file.clone()));
        if new {
            let (name, filename) = (self.string(&name), self.string(&file));
            self.profile.function.push(proto::Function { id, name, system_name: name, filename });
        }
        proto::Line { function_id: id, line }
    }

    fn location(&mut self, address: u64, files: &[Symbols]) -> u64 {
        let (id, new) = self.locations.of(address);
        if new {
            let file = files.iter().position(|file| file.mapping.start <= address && address < file.mapping.end);
            let lines = file.map(|i| files[i].lines(address)).unwrap_or_default();
            let line = lines.into_iter().map(|(name, file, line)| self.line(name, file, line)).collect();
            let mapping_id = file.map_or(0, |i| i as u64 + 1);
            self.profile.location.push(proto::Location { id, mapping_id, address, line });
        }
        id
    }
}

/// The names in one mapped file.
struct Symbols {
    mapping: Mapping,
    image: Option<Image>,
    loader: Option<Loader>,
}

impl Symbols {
    fn of(mapping: Mapping, process: &Path) -> Symbols {
        let path = elf::opened(process, &mapping);
        Symbols { image: Image::of(&path), loader: Loader::new(&path).ok(), mapping }
    }

    /// (function, file, line) at a return address, the innermost inlined one first.
    fn lines(&self, address: u64) -> Vec<(String, String, i64)> {
        let offset = address - self.mapping.start + self.mapping.offset;
        let (Some(image), Some(loader)) = (&self.image, &self.loader) else { return Vec::new() };
        // The call lies before the address to which it returns.
        let Some(probe) = image.address_of(offset).map(|at| at.saturating_sub(1)) else { return Vec::new() };
        let mut found = Vec::new();
        if let Ok(mut frames) = loader.find_frames(probe) {
            while let Ok(Some(frame)) = frames.next() {
                let Some(name) = frame.function.as_ref().and_then(|function| function.demangle().ok()) else { continue };
                let location = frame.location.as_ref();
                let file = location.and_then(|place| place.file).unwrap_or("");
                found.push((name.into_owned(), file.to_string(), location.and_then(|place| place.line).map_or(0, i64::from)));
            }
        }
        if found.is_empty() {
            if let Some(name) = loader.find_symbol(probe) {
                found.push((addr2line::demangle_auto(name.into(), None).into_owned(), String::new(), 0));
            }
        }
        found
    }
}

/// The gzipped profile. `kind` is the one that is shown first: "inuse" or "alloc".
pub fn encode(dump: &Dump, process: &Path, kind: &str) -> std::io::Result<Vec<u8>> {
    let mut builder = Builder {
        profile: proto::Profile::default(),
        strings: HashMap::new(),
        functions: Numbers(HashMap::new()),
        locations: Numbers(HashMap::new()),
    };
    builder.string("");
    for (name, unit) in
        [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
    {
        let each = builder.value_type(name, unit);
        builder.profile.sample_type.push(each);
    }
    let used =
        |mapping: &Mapping| dump.sites.iter().flat_map(|site| &site.frames).any(|&at| mapping.start <= at && at < mapping.end);
    let files: Vec<Symbols> = dump.mappings().into_iter().filter(used).map(|mapping| Symbols::of(mapping, process)).collect();
    for (i, file) in files.iter().enumerate() {
        let (mapping, known) = (&file.mapping, file.loader.is_some());
        let name = mapping.path.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or("");
        let filename = builder.string(name);
        let build_id = builder.string(file.image.as_ref().map_or("", |image| &image.build_id));
        builder.profile.mapping.push(proto::Mapping {
            id: i as u64 + 1,
            memory_start: mapping.start,
            memory_limit: mapping.end,
            file_offset: mapping.offset,
            filename,
            build_id,
            has_functions: known,
            has_filenames: known,
            has_line_numbers: known,
            has_inline_frames: known,
        });
    }
    for site in &dump.sites {
        let location_id = site.frames.iter().map(|&address| builder.location(address, &files)).collect();
        let (allocated, live) = (estimate(site.allocated, dump.interval), estimate(site.live(), dump.interval));
        let value = vec![allocated.0, allocated.1, live.0, live.1];
        let label =
            site.labels.iter().map(|(key, text)| proto::Label { key: builder.string(key), text: builder.string(text) }).collect();
        builder.profile.sample.push(proto::Sample { location_id, value, label });
    }
    builder.profile.period_type = Some(builder.value_type("space", "bytes"));
    builder.profile.period = dump.interval as i64;
    builder.profile.default_sample_type = builder.string(&format!("{kind}_space"));
    builder.profile.time_nanos = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as i64);
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&builder.profile.encode_to_vec())?;
    packed.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_labels() {
        let site = r#""frames": [4096], "allocated": [1, 100], "freed": [0, 0]"#;
        let text = format!(
            r#"{{"interval": 1, "sites": [{{{site}, "labels": {{"tenant": "a \"b\"", "heap": "a"}}}}, {{{site}}}], "maps": ""}}"#
        );
        let packed = encode(&serde_json::from_str(&text).unwrap(), Path::new("/proc/self"), "inuse").unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut bytes).unwrap();
        let found = proto::Profile::decode(&bytes[..]).unwrap();
        let named = |sample: &proto::Sample| -> Vec<(String, String)> {
            let text = |number: i64| found.string_table[number as usize].clone();
            sample.label.iter().map(|label| (text(label.key), text(label.text))).collect()
        };
        let pair = |key: &str, text: &str| (key.to_string(), text.to_string());
        assert_eq!(
            found.sample.iter().map(named).collect::<Vec<_>>(),
            [vec![pair("heap", "a"), pair("tenant", "a \"b\"")], vec![]]
        );
    }
}
