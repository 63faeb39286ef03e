#!/usr/bin/env python3
"""Writes the OpenMetrics names, types, units and words of every figure from src/diag/stats.def, so that all say of a running process
what HAKMEM_STATS=prom says at its end: lab/src/hakmem_lab/inspect/metrics.json for `hakmem serve` and hakmem-exporter,
include/hakmem/prometheus.h for C++ programs, rust/hakmem/src/metrics.rs for Rust ones.

  gen_lab_metrics.py            writes the files
  gen_lab_metrics.py --check    fails when one is not what this program writes
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "lab" / "src" / "hakmem_lab" / "inspect" / "metrics.json"

# One '@' line per row of the list. The help is last, because it may contain the separator.
PROGRAM = """\
#define HAK_STATS_GROUP(group, label, metric, flag) @G group ; metric @end
#define HAK_STATS_FIGURE(group, name, type, unit, help) @F group ; name ; type ; unit ; help @end
#define HAK_STATS_COLUMN(name, title, width, type, unit, flag, help) @C class ; name ; type ; unit ; help @end
#define HAK_STATS_HEAP(name, type, help) @H heap ; name ; type ; NONE ; help @end
#include "diag/stats.def"
"""


def rows():
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        sys.exit("no C compiler: './dev setup' installs one")
    done = subprocess.run([compiler, "-E", "-P", "-I", str(ROOT / "src"), "-I", str(ROOT / "include"), "-xc", "-"],
                          input=PROGRAM, check=True, stdout=subprocess.PIPE, text=True)
    for kind, row in re.findall(r"@(\w+) (.*?) @end", done.stdout, re.S):
        yield kind, [re.sub(r"\s+", " ", field).strip() for field in row.split(";", 1 if kind == "G" else 4)]


def text(literals):
    """C string literals beside one another as one text."""
    return "".join(json.loads(f'"{part}"') for part in re.findall(r'"((?:[^"\\]|\\.)*)"', literals))


def metric(group, name, unit):
    """As metric_of in src/upkeep/dump.c makes it."""
    return f"hakmem_{group}_{name}" + ("_bytes" if unit == "BYTES" and not name.endswith("_bytes") else "")


def document():
    groups, found = {"class": "class", "heap": "heap"}, []
    for kind, fields in rows():
        if kind == "G":
            groups[fields[0]] = text(fields[1])
            continue
        group, name, type_, unit, words = fields
        if kind == "C" and name == "size":   # the label of the others
            continue
        found.append({"group": group, "name": name, "metric": metric(groups[group], name, unit), "type": type_.lower(),
                      "unit": unit.lower() if unit != "NONE" else "", "help": text(words)})
    lines = ",\n".join(json.dumps(each) for each in found)
    return f"[\n{lines}\n]\n"


def of_the_structure():
    """The rows of groups: what struct hak_stats has a field for. A group with a flag, only where the flag is set."""
    flags = {"calls": "HAK_STATS_HAS_CALLS", "ledger": "HAK_STATS_HAS_LEDGER"}
    for each in json.loads(document()):
        if each["group"] not in ("class", "heap"):
            yield {**each, "field": f"{each['group']}_{each['name']}", "flag": flags.get(each["group"], "0")}


def header():
    rows = "".join(
        f'    {{"{each["metric"]}", "{each["unit"]}", {str(each["type"] == "counter").lower()}, {each["flag"]}, '
        f'offsetof(struct hak_stats, {each["field"]}),\n     {json.dumps(each["help"])}}},\n' for each in of_the_structure())
    return HEADER.replace("@ROWS@", rows)


def crate():
    rows = "".join(
        f'    Figure {{ name: "{each["metric"]}", unit: "{each["unit"]}", counts: {str(each["type"] == "counter").lower()}, '
        f'flag: {each["flag"] if each["flag"] == "0" else "sys::" + each["flag"]},\n'
        f'             help: {json.dumps(each["help"])}, of: |stats| stats.{each["field"]} }},\n' for each in of_the_structure())
    return CRATE.replace("@ROWS@", rows)


HEADER = """\
// HAKMEM's figures as OpenMetrics text, for a C++ program that serves its own /metrics (docs/fleet.md). Written by
// tools/gen_lab_metrics.py from src/diag/stats.def.
//
//   std::string page = hak::open_metrics();                  // ends in "# EOF"; Content-Type: hak::open_metrics_type
//   std::string part = hak::open_metrics(false);             // without it, to append one's own metrics
#ifndef HAKMEM_PROMETHEUS_H
#define HAKMEM_PROMETHEUS_H

#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "../hakmem_stats.h"

namespace hak {

constexpr const char *open_metrics_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";

namespace detail {

struct figure {
    const char *name, *unit;
    bool counts;
    std::uint64_t flag;
    std::size_t offset;
    const char *help;
};

inline constexpr figure figures[] = {
@ROWS@};

}  // namespace detail

// The figures now; no thread is stopped. Empty if the library refuses.
inline std::string open_metrics(bool end = true) {
    struct hak_stats stats;
    if (hak_stats_snapshot(&stats, sizeof stats) != 0) return {};
    std::string page;
    page.reserve(16384);
    for (const detail::figure &each : detail::figures) {
        if (each.offset + sizeof(std::uint64_t) > stats.size || (each.flag != 0 && (stats.flags & each.flag) == 0)) continue;
        std::uint64_t value;
        std::memcpy(&value, reinterpret_cast<const char *>(&stats) + each.offset, sizeof value);
        page.append("# TYPE ").append(each.name).append(each.counts ? " counter\\n" : " gauge\\n");
        if (*each.unit != 0) page.append("# UNIT ").append(each.name).append(" ").append(each.unit).append("\\n");
        page.append("# HELP ").append(each.name).append(" ").append(each.help).append("\\n");
        page.append(each.name).append(each.counts ? "_total " : " ").append(std::to_string(value)).append("\\n");
    }
    if (end) page.append("# EOF\\n");
    return page;
}

}  // namespace hak

#endif
#endif
"""

CRATE = """\
//! The figures as a collector of `prometheus-client`. Written by tools/gen_lab_metrics.py from src/diag/stats.def.
//!
//! ```
//! # #[global_allocator] static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
//! let mut registry = prometheus_client::registry::Registry::default();
//! registry.register_collector(Box::new(hakmem::metrics::Collector));
//! let mut page = String::new();
//! prometheus_client::encoding::text::encode(&mut page, &registry)?;
//! assert!(page.contains("hakmem_memory_live_bytes "));
//! # Ok::<(), core::fmt::Error>(())
//! ```
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::{counter::ConstCounter, gauge::ConstGauge, MetricType};
use prometheus_client::registry::Unit;

use crate::{sys, Stats};

/// Gives the allocator's figures at each scrape; it has no state of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collector;

struct Figure {
    name: &'static str,
    unit: &'static str,
    counts: bool,
    flag: u64,
    help: &'static str,
    of: fn(&Stats) -> u64,
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), core::fmt::Error> {
        let stats = crate::stats().map_err(|_| core::fmt::Error)?;
        for each in FIGURES.iter().filter(|each| each.flag == 0 || stats.flags & each.flag != 0) {
            let unit = (each.unit == "bytes").then_some(Unit::Bytes);
            let name = if unit.is_some() { each.name.trim_end_matches("_bytes") } else { each.name };
            let kind = if each.counts { MetricType::Counter } else { MetricType::Gauge };
            let help = each.help.trim_end_matches('.');
            let value = (each.of)(&stats);
            let metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            if each.counts {
                ConstCounter::new(value).encode(metric)?;
            } else {
                ConstGauge::new(value).encode(metric)?;
            }
        }
        Ok(())
    }
}

#[rustfmt::skip]
const FIGURES: &[Figure] = &[
@ROWS@];
"""


TARGETS = {
    TARGET: document,
    ROOT / "include" / "hakmem" / "prometheus.h": header,
    ROOT / "rust" / "hakmem" / "src" / "metrics.rs": crate,
}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    for target, made in TARGETS.items():
        wanted = made()
        if not sys.argv[1:]:
            target.parent.mkdir(exist_ok=True)
            target.write_text(wanted, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != wanted:
            sys.exit(f"{target.relative_to(ROOT)} is out of date; run tools/gen_lab_metrics.py")


if __name__ == "__main__":
    main()
