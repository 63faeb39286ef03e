//! Labels from Rust: scopes nest, and a task of tokio keeps its labels on whichever thread it runs.

use hakmem::label::{self, Labels};
use hakmem::Hakmem;

#[global_allocator]
static GLOBAL: Hakmem = Hakmem;

#[test]
fn scopes_nest() {
    let before = Labels::current();
    let (outer, inner);
    {
        let _tenant = label::scope("tenant", "acme");
        outer = Labels::current();
        {
            let _query = label::scope("query", "search");
            inner = Labels::current();
        }
        assert_eq!(Labels::current(), outer);
    }
    assert_eq!(Labels::current(), before);
    assert!(outer != before && inner != outer);
    let _both = inner.scope();
    assert_eq!(std::thread::spawn(Labels::current).join().unwrap(), Labels::NONE);
    assert_eq!(Labels::current(), inner);
}

#[test]
fn a_panic_restores_too() {
    let before = Labels::current();
    let caught = std::panic::catch_unwind(|| {
        let _tenant = label::scope("tenant", "panics");
        std::panic::resume_unwind(Box::new(1));
    });
    assert!(caught.is_err() && Labels::current() == before);
}

/// Two tasks on each of several threads, which take turns at every await: each always sees its own labels.
#[test]
fn tasks_of_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    let tasks: Vec<_> = (0..12)
        .map(|number| {
            runtime.spawn(label::task(async move {
                label::set("tenant", &format!("tenant {number}"));
                let mine = Labels::current();
                for _ in 0..200 {
                    tokio::task::yield_now().await;
                    assert_eq!(Labels::current(), mine);
                }
                mine
            }))
        })
        .collect();
    let seen: std::collections::HashSet<_> = runtime
        .block_on(async {
            let mut seen = Vec::new();
            for task in tasks {
                seen.push(format!("{:?}", task.await.unwrap()));
            }
            seen
        })
        .into_iter()
        .collect();
    assert_eq!(seen.len(), 12);
    // The workers' own labels are as before.
    let none = runtime.block_on(async { tokio::spawn(async { Labels::current() }).await.unwrap() });
    assert_eq!(none, Labels::NONE);
}
