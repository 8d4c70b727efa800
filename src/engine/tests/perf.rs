use super::*;
use crate::vfs::OsVfs;
use std::sync::Arc;
use std::time::Instant;

fn rss() -> u64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap();
    let get = |k: &str| {
        s.lines()
            .find(|l| l.starts_with(k))
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            / 1024
    };
    eprint!("anon {} file {} ", get("RssAnon:"), get("RssFile:"));
    get("VmRSS:")
}

#[test]
#[ignore = "measures"]
fn import() {
    let dir =
        std::path::PathBuf::from(std::env::var("PERF_DIR").unwrap_or("/tmp/annals-perf".into()));
    let _ = std::fs::remove_dir_all(&dir);
    let total: u64 =
        std::env::var("PERF_MB").ok().and_then(|v| v.parse().ok()).unwrap_or(500) << 20;
    let keys: u64 = std::env::var("PERF_KEYS").ok().and_then(|v| v.parse().ok()).unwrap_or(100_000);
    let options = Options::new().vfs(Arc::new(OsVfs::new())).durability(Durability::Buffered);
    let (engine, _) = Engine::open(&dir, &options).unwrap();
    let start = Instant::now();
    let mut n = Numbers::new(1);
    let mut written = 0;
    let mut ops = 0_u64;
    let mut next = 1;
    let words: Vec<u8> = (0..65536).map(|_| b"abcdefgh{}\":,0123"[n.below(17) as usize]).collect();
    while written < total {
        let k = n.below(keys);
        let key = user(format!("/registry/pods/namespace-{}/pod-{:07}", k % 50, k));
        let at = n.below(60000) as usize;
        let mut value = words[at..at + 900].to_vec();
        value[..8].copy_from_slice(&ops.to_be_bytes());
        written += value.len() as u64;
        ops += 1;
        commit(&engine, vec![put(key, value)]).unwrap();
        if written >= next * (total / 10) {
            next += 1;
            let s = engine.stats();
            eprintln!(
                "{:?} {} MB {} ops rss {} gens {} mem {} l0 {} head {}/{} hist {}/{} windows {} waits {} folds {} bg {} wal {}/{} cache {}",
                start.elapsed(),
                written >> 20,
                ops,
                rss(),
                s.generations,
                s.memtable_bytes >> 20,
                s.l0.files,
                s.head.files,
                s.head.bytes >> 20,
                s.history.files,
                s.history.bytes >> 20,
                s.history_windows,
                s.waits,
                s.folds,
                s.background_bytes >> 20,
                s.wal_files,
                s.wal_bytes >> 20,
                s.cache_bytes >> 20
            );
        }
    }
    engine.flush().unwrap();
    eprintln!("done {:?} rss {}", start.elapsed(), rss());
    let t = Instant::now();
    engine.close().unwrap();
    eprintln!("close {:?}", t.elapsed());
    drop(engine);
    let t = Instant::now();
    let (engine, report) = Engine::open(&dir, &options).unwrap();
    eprintln!("open {:?} {report:?}", t.elapsed());
    let view = engine.latest().unwrap();
    let t = Instant::now();
    for _ in 0..100_000 {
        let k = n.below(keys);
        view.get(&user(format!("/registry/pods/namespace-{}/pod-{:07}", k % 50, k))).unwrap();
    }
    eprintln!("get latest {:?} each", t.elapsed() / 100_000);
    let t = Instant::now();
    for _ in 0..20_000 {
        let k = n.below(keys);
        let v = engine.view(2 + n.below(engine.revision() - 2)).unwrap();
        v.get(&user(format!("/registry/pods/namespace-{}/pod-{:07}", k % 50, k))).unwrap();
    }
    eprintln!("get old {:?} each", t.elapsed() / 20_000);
    let t = Instant::now();
    let c = view.scan(b"\x01", b"", false).count();
    eprintln!("scan {c} {:?} each", t.elapsed() / c as u32);
    let t = Instant::now();
    let c = view.scan(b"\x01", b"", false).rev().count();
    eprintln!("scan rev {c} {:?} each", t.elapsed() / c as u32);
    let v = engine.view(engine.revision() * 9 / 10).unwrap();
    let t = Instant::now();
    let c = v.scan(b"\x01", b"", false).count();
    eprintln!("scan old {c} {:?} each", t.elapsed() / c as u32);
    eprintln!("rss {}", rss());
    let t = Instant::now();
    compact(&engine, engine.revision() / 2).unwrap();
    eprintln!("compact {:?}", t.elapsed());
    let t = Instant::now();
    engine.reorganise().unwrap();
    eprintln!("reorganise {:?} {:?}", t.elapsed(), engine.stats());
}
