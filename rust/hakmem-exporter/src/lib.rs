//! The exporter's parts. `host` looks at all processes; `live` and `ledger` read HAKMEM in one of them from outside; `metrics`,
//! `pprof` and `why` say what was found; `server` serves it.

pub mod elf;
pub mod host;
pub mod ledger;
pub mod live;
pub mod memory;
pub mod metrics;
pub mod pprof;
pub mod process;
pub mod profile;
pub mod server;
pub mod why;
