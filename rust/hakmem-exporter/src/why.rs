//! One sentence: what holds a process's memory, and what would change it (as `hakmem stats` says it).

use crate::host::Seen;
use crate::ledger::Ledger;

pub fn in_bytes(value: u64) -> String {
    match value {
        0..1024 => format!("{value} B"),
        1024..1_048_576 => format!("{} KiB", value >> 10),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", value as f64 / (1u64 << 20) as f64),
        _ => format!("{:.2} GiB", value as f64 / (1u64 << 30) as f64),
    }
}

pub fn sentence(seen: &Seen) -> String {
    let Some(served) = &seen.served else {
        return format!("This process runs on {}; only HAKMEM tells what holds its memory.", seen.allocator);
    };
    match &served.ledger {
        Some(ledger) => of(ledger),
        None => "The heap is too large to look at every page.".to_string(),
    }
}

fn of(ledger: &Ledger) -> String {
    let (total, held) = (ledger.sum(), ledger.live + ledger.huge);
    let ours = [
        ("free_in_slabs", ledger.free_in_slabs),
        ("cached", ledger.cached),
        ("empty", ledger.empty),
        ("metadata", ledger.metadata),
    ];
    let (name, bytes) = ours.into_iter().max_by_key(|each| each.1).unwrap_or(("", 0));
    let amount = in_bytes(bytes);
    if bytes.saturating_mul(20) < total {
        let (where_, most) = if held >= ledger.not_ours { ("live blocks", held) } else { ("outside of HAKMEM", ledger.not_ours) };
        return format!(
            "Nothing to speak of is pinned by the allocator: {} of {} are {where_}.",
            in_bytes(most),
            in_bytes(total)
        );
    }
    match name {
        "cached" => format!("{amount} lie ready in the threads' caches; HAKMEM_THREAD_BUDGET and HAKMEM_PROCESS_BUDGET bound them."),
        "empty" => format!("{amount} are empty slabs that wait for use; a larger HAKMEM_RETURN returns them sooner, hak_collect() at once."),
        "metadata" => format!("{amount} are the library's own tables; fewer threads at once need fewer."),
        _ if ledger.pinned_most.1.saturating_mul(50) < bytes => format!(
            "{amount} are free pages of slabs that stay with their size, as all do in hardened mode; they go back as HAKMEM_RETURN allows, \
             at once by hak_collect()."
        ),
        _ => format!(
            "Live blocks pin {amount}: free blocks in slabs that other blocks keep in use, most of it between live blocks of {} bytes; \
             no option returns them before their neighbours are freed.",
            ledger.pinned_most.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_is_named() {
        let pinned = Ledger { live: 10, free_in_slabs: 90 << 20, pinned_most: (64, 90 << 20), ..Ledger::default() };
        assert!(of(&pinned).starts_with("Live blocks pin 90.0 MiB") && of(&pinned).contains("64 bytes"));
        let kept = Ledger { live: 10, free_in_slabs: 90 << 20, pinned_most: (64, 1 << 20), ..Ledger::default() };
        assert!(of(&kept).contains("hardened"));
        assert!(of(&Ledger { live: 1, empty: 5000, ..Ledger::default() }).contains("empty slabs"));
        assert!(of(&Ledger { live: 1 << 30, empty: 5000, ..Ledger::default() }).contains("live blocks"));
        assert!(of(&Ledger { not_ours: 1 << 30, ..Ledger::default() }).contains("outside of HAKMEM"));
    }
}
