//! A look at the host as OpenMetrics, or as Prometheus' older text. Names of HAKMEM's figures are those of `HAKMEM_STATS=prom`,
//! from the list generated of them; times are in seconds.

use std::fmt::Error;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde::Deserialize;

use crate::host::{Look, Seen, Served};
use crate::live::UserHeap;

/// User heaps of a process with a label of their own; the others are summed.
const MOST_USER_HEAPS: usize = 10;
/// What `hakmem_ledger_sum_bytes` and the like would say twice is left out; the rest of the list is `hakmem stats`' business.
const GROUPS: [&str; 5] = ["bytes", "returns", "huge", "total", "upkeep"];

#[derive(Debug, Deserialize)]
struct Metric {
    group: String,
    name: String,
    metric: String,
    #[serde(rename = "type")]
    kind: String,
    unit: String,
    help: String,
}

fn list() -> &'static [Metric] {
    static LIST: OnceLock<Vec<Metric>> = OnceLock::new();
    LIST.get_or_init(|| {
        serde_json::from_str(include_str!("../../../lab/src/hakmem_lab/inspect/metrics.json")).unwrap_or_default()
    })
}

/// A process's labels, and one or two more of a single series.
struct Labels<'a> {
    seen: Option<&'a Seen>,
    more: &'a [(&'a str, &'a str)],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> Result<(), Error> {
        if let Some(seen) = self.seen {
            ("service", seen.service.as_str()).encode(encoder.encode_label())?;
            ("process", seen.place as u64).encode(encoder.encode_label())?;
            ("allocator", seen.allocator).encode(encoder.encode_label())?;
            ("version", seen.version.as_str()).encode(encoder.encode_label())?;
        }
        for label in self.more {
            (label.0, label.1).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

/// A family of metrics: what is said about it, once.
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    unit: Option<Unit>,
    counts: bool,
}

type Sample<'a> = (Labels<'a>, f64);

fn gauge<'a>(name: &'a str, unit: Option<Unit>, help: &'a str) -> Family<'a> {
    Family { name, help, unit, counts: false }
}

fn counter<'a>(name: &'a str, unit: Option<Unit>, help: &'a str) -> Family<'a> {
    Family { name, help, unit, counts: true }
}

fn write<'a>(
    encoder: &mut DescriptorEncoder,
    family: &Family,
    samples: impl IntoIterator<Item = Sample<'a>>,
) -> Result<(), Error> {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let kind = if family.counts { MetricType::Counter } else { MetricType::Gauge };
    let help = family.help.trim_end_matches('.');
    let mut metric = encoder.encode_descriptor(family.name, help, family.unit.as_ref(), kind)?;
    for (labels, value) in samples {
        let mut sample = metric.encode_family(&labels)?;
        if family.counts {
            sample.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
        } else {
            sample.encode_gauge(&value)?;
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Page(Arc<Look>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let look = &self.0;
        processes(&mut encoder, look)?;
        cgroups(&mut encoder, look)?;
        served(&mut encoder, look)?;
        user_heaps(&mut encoder, look)?;
        exporter(&mut encoder, look)
    }
}

fn of(seen: &Seen) -> Labels<'_> {
    Labels { seen: Some(seen), more: &[] }
}

fn processes(encoder: &mut DescriptorEncoder, look: &Look) -> Result<(), Error> {
    let all = || look.seen.iter();
    let weighed = || all().filter(|each| each.kernel.has_proportional);
    let bytes = || Some(Unit::Bytes);
    write(
        encoder,
        &gauge("hakmem_process_resident", bytes(), "Resident memory."),
        all().map(|s| (of(s), s.kernel.resident as f64)),
    )?;
    write(
        encoder,
        &gauge("hakmem_process_proportional", bytes(), "Resident memory; of shared pages, its part."),
        weighed().map(|s| (of(s), s.kernel.proportional as f64)),
    )?;
    write(
        encoder,
        &gauge("hakmem_process_private", bytes(), "Resident memory that no other process shares."),
        weighed().map(|s| (of(s), s.kernel.private as f64)),
    )?;
    write(encoder, &gauge("hakmem_process_swap", bytes(), "Memory in swap."), all().map(|s| (of(s), s.kernel.swap as f64)))?;
    write(
        encoder,
        &gauge("hakmem_process_page_tables", bytes(), "Page tables."),
        all().map(|s| (of(s), s.kernel.page_tables as f64)),
    )?;
    write(encoder, &gauge("hakmem_process_threads", None, "Threads."), all().map(|s| (of(s), s.kernel.threads as f64)))?;
    write(
        encoder,
        &gauge("hakmem_process_start_time", Some(Unit::Seconds), "When it was started, in Unix time."),
        all().map(|s| (of(s), s.kernel.start_seconds)),
    )?;
    let faults = |s: &'_ Seen| [("minor", s.kernel.minor_faults), ("major", s.kernel.major_faults)];
    static MINOR: [(&str, &str); 1] = [("kind", "minor")];
    static MAJOR: [(&str, &str); 1] = [("kind", "major")];
    write(
        encoder,
        &counter("hakmem_process_faults", None, "Page faults, without and with reading from disk."),
        all().flat_map(|s| {
            let [minor, major] = faults(s);
            [(Labels { seen: Some(s), more: &MINOR }, minor.1 as f64), (Labels { seen: Some(s), more: &MAJOR }, major.1 as f64)]
        }),
    )?;
    static USER: [(&str, &str); 1] = [("mode", "user")];
    static SYSTEM: [(&str, &str); 1] = [("mode", "system")];
    write(
        encoder,
        &counter("hakmem_process_cpu", Some(Unit::Seconds), "Processor time."),
        all().flat_map(|s| {
            [
                (Labels { seen: Some(s), more: &USER }, s.kernel.user_seconds),
                (Labels { seen: Some(s), more: &SYSTEM }, s.kernel.system_seconds),
            ]
        }),
    )
}

/// A control group has the labels of its first process.
fn cgroups(encoder: &mut DescriptorEncoder, look: &Look) -> Result<(), Error> {
    let groups: Vec<_> = look
        .cgroups
        .iter()
        .filter_map(|(path, group)| Some((look.seen.iter().find(|seen| seen.cgroup.as_deref() == Some(path))?, group)))
        .collect();
    write(
        encoder,
        &gauge("hakmem_cgroup_memory", Some(Unit::Bytes), "Memory of the control group."),
        groups.iter().filter_map(|(seen, group)| Some((of(seen), group.current? as f64))),
    )?;
    write(
        encoder,
        &gauge("hakmem_cgroup_memory_limit", Some(Unit::Bytes), "Its limit, if it has one."),
        groups.iter().filter_map(|(seen, group)| Some((of(seen), group.limit? as f64))),
    )?;
    let events: Vec<_> = groups
        .iter()
        .flat_map(|(seen, group)| group.events.iter().map(move |(name, &count)| (*seen, [("event", name.as_str())], count)))
        .collect();
    write(
        encoder,
        &counter("hakmem_cgroup_memory_events", None, "Its memory events; oom_kill counts killed processes."),
        events.iter().map(|(seen, more, count)| (Labels { seen: Some(seen), more }, *count as f64)),
    )?;
    let waits: Vec<_> = groups
        .iter()
        .filter_map(|(seen, group)| {
            group.stalled.map(|(some, full)| [(*seen, [("tasks", "some")], some), (*seen, [("tasks", "all")], full)])
        })
        .flatten()
        .collect();
    write(
        encoder,
        &counter("hakmem_cgroup_memory_stalled", Some(Unit::Seconds), "Time in which its tasks waited for memory."),
        waits.iter().map(|(seen, more, seconds)| (Labels { seen: Some(seen), more }, *seconds)),
    )
}

fn served(encoder: &mut DescriptorEncoder, look: &Look) -> Result<(), Error> {
    let all: Vec<(&Seen, &Served)> = look.seen.iter().filter_map(|each| Some((each, each.served.as_ref()?))).collect();
    for metric in list() {
        if metric.group == "ledger" {
            let value = |served: &Served| {
                let parts = served.ledger.as_ref()?.parts();
                Some(parts.iter().find(|part| part.0 == metric.name)?.1 as f64)
            };
            figure(encoder, metric, 1.0, all.iter().filter_map(|(seen, served)| Some((of(seen), value(served)?))))?;
        } else if GROUPS.contains(&metric.group.as_str()) {
            let name = format!("{}_{}", metric.group, metric.name);
            let value = |served: &Served| served.snapshot.figures.get(&name).copied();
            // The library counts nanoseconds; OpenMetrics wants seconds.
            let scale = if metric.group == "returns" && metric.unit.is_empty() { 1e-9 } else { 1.0 };
            figure(
                encoder,
                metric,
                scale,
                all.iter().filter_map(|(seen, served)| Some((of(seen), value(served)? as f64 * scale))),
            )?;
        }
    }
    write(
        encoder,
        &gauge("hakmem_pinned", Some(Unit::Bytes), "Resident free memory in spans that live blocks keep."),
        all.iter().filter_map(|(seen, served)| Some((of(seen), served.ledger.as_ref()?.pinned as f64))),
    )?;
    write(
        encoder,
        &gauge("hakmem_profile_running", None, "Whether a heap profile is on."),
        all.iter().map(|(seen, served)| (of(seen), f64::from(u8::from(served.snapshot.profiled)))),
    )?;
    let settings: Vec<_> = all
        .iter()
        .flat_map(|(seen, served)| served.snapshot.settings.iter().map(|each| (*seen, each)))
        .map(|(seen, each)| (seen, [("option", each.name.as_str()), ("origin", each.origin.as_str())], each.value))
        .collect();
    write(
        encoder,
        &gauge("hakmem_option", None, "The value in force of an option that is not at its standard one."),
        settings.iter().map(|(seen, more, value)| (Labels { seen: Some(seen), more }, *value as f64)),
    )
}

fn figure<'a>(
    encoder: &mut DescriptorEncoder,
    metric: &Metric,
    scale: f64,
    samples: impl Iterator<Item = Sample<'a>>,
) -> Result<(), Error> {
    let unit = if scale == 1.0 { (metric.unit == "bytes").then_some(Unit::Bytes) } else { Some(Unit::Seconds) };
    let name = if metric.unit == "bytes" { metric.metric.trim_end_matches("_bytes") } else { metric.metric.as_str() };
    let counts = metric.kind == "counter";
    write(encoder, &Family { name, help: &metric.help, unit, counts }, samples)
}

/// The user heaps with the most memory by name; those of one name are summed, and so are the rest.
fn user_heaps(encoder: &mut DescriptorEncoder, look: &Look) -> Result<(), Error> {
    const REST: &str = "(others)";
    let mut rows: Vec<(&Seen, String, UserHeap)> = Vec::new();
    for (seen, served) in look.seen.iter().filter_map(|each| Some((each, each.served.as_ref()?))) {
        let mut named: Vec<UserHeap> = Vec::new();
        for heap in &served.snapshot.heaps {
            add(&mut named, &heap.name, heap);
        }
        named.sort_by_key(|heap| std::cmp::Reverse(heap.figures.get("used_bytes").copied()));
        let rest = named.split_off(named.len().min(MOST_USER_HEAPS));
        for heap in &rest {
            add(&mut named, REST, heap);
        }
        rows.extend(named.into_iter().map(|heap| (seen, heap.name.clone(), heap)));
    }
    for metric in list().iter().filter(|metric| metric.group == "heap") {
        let labels: Vec<_> = rows
            .iter()
            .filter_map(|(seen, name, heap)| Some((*seen, [("heap", name.as_str())], *heap.figures.get(metric.name.as_str())?)))
            .collect();
        // The list has no unit for these.
        let is_bytes = metric.name.ends_with("_bytes") || metric.name == "limit";
        let name = format!("hakmem_user_heap_{}", metric.name.trim_end_matches("_bytes"));
        let family =
            Family { name: &name, help: &metric.help, unit: is_bytes.then_some(Unit::Bytes), counts: metric.kind == "counter" };
        write(encoder, &family, labels.iter().map(|(seen, more, value)| (Labels { seen: Some(seen), more }, *value as f64)))?;
    }
    Ok(())
}

fn add(named: &mut Vec<UserHeap>, name: &str, heap: &UserHeap) {
    let place = named.iter().position(|each| each.name == name);
    let place = place.unwrap_or_else(|| {
        named.push(UserHeap { name: name.to_string(), figures: Default::default() });
        named.len() - 1
    });
    for (figure, value) in &heap.figures {
        let sum = named[place].figures.entry(figure).or_default();
        *sum = sum.wrapping_add(*value);
    }
}

fn exporter(encoder: &mut DescriptorEncoder, look: &Look) -> Result<(), Error> {
    let plain = |more| Labels { seen: None, more };
    let served = look.seen.iter().filter(|each| each.served.is_some()).count();
    let counted = [
        ([("state", "served")], served),
        ([("state", "other")], look.seen.iter().filter(|each| each.allocator != "hakmem").count()),
    ];
    write(
        encoder,
        &gauge("hakmem_exporter_processes", None, "Processes with series of their own, by whether HAKMEM serves them."),
        counted.iter().map(|(more, count)| (plain(more), *count as f64)),
    )?;
    let faults: Vec<_> = look.faults.iter().map(|(word, &count)| ([("why", *word)], count)).collect();
    write(
        encoder,
        &gauge("hakmem_exporter_unread_processes", None, "Processes without HAKMEM's figures in this scrape, and why."),
        faults.iter().map(|(more, count)| (plain(more), *count as f64)),
    )?;
    write(
        encoder,
        &gauge(
            "hakmem_exporter_left_out_processes",
            None,
            "Processes without series: only those with the most memory have some.",
        ),
        [(plain(&[]), look.left_out as f64)],
    )?;
    write(
        encoder,
        &gauge("hakmem_exporter_left_out_resident", Some(Unit::Bytes), "Their resident memory."),
        [(plain(&[]), look.left_out_resident as f64)],
    )?;
    write(
        encoder,
        &gauge("hakmem_exporter_look", Some(Unit::Seconds), "How long this look at the host took."),
        [(plain(&[]), look.seconds)],
    )?;
    static VERSION: [(&str, &str); 1] = [("exporter", env!("CARGO_PKG_VERSION"))];
    write(encoder, &gauge("hakmem_exporter_build", None, "The exporter's version."), [(plain(&VERSION), 1.0)])
}

/// The page; `open`: OpenMetrics, otherwise Prometheus' text format of before.
pub fn text(look: &Arc<Look>, open: bool) -> Result<String, Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(Arc::clone(look))));
    let mut content = String::new();
    if open {
        prometheus_client::encoding::text::encode(&mut content, &registry)?;
    } else {
        prometheus_client::encoding::prometheus_text::encode(&mut content, &registry)?;
    }
    Ok(content)
}
