//! `annals-etcd` beside real etcds: the same client, the same disk, in turns.
//!
//! ```sh
//! cargo bench -p annals-etcd --bench beside_etcd                  # some 10 minutes, with the etcd of the path
//! cargo bench -p annals-etcd --bench beside_etcd -- --quick       # proves that it works
//! ETCD=etcd:/opt/etcd-3.6/etcd cargo bench -p annals-etcd --bench beside_etcd -- --only put --rounds 9
//! ```
//!
//! # What is measured
//!
//! All servers run at once, each a process of its own with a directory of its own below `--dir`, and as its makers
//! ship it: no flag but the addresses and a quota of 8 GiB. Each syncs a write to the disk before it answers. One asks
//! while the others idle, in turns, each round beginning with another. The clients are tasks of one thread, on
//! at most 50 connections, and ask anew as soon as they are answered. Puts, ranges and transactions are asked by a client
//! that does as little as it can (`wire.rs`), so that it leaves the processors to the servers.
//!
//! * **put**: 256 bytes, half of them noise, to a random key of `--keys`.
//! * **range**: of one random key, linearizable and serializable; of 100 keys.
//! * **txn**: a comparison of the `mod_revision` and a put; each client has 16 keys to itself.
//! * **watch**: watches of all keys, on at most 50 streams. The latency is from the begin of a put until the last watch
//!   has it, one put at a time; the rate is that of events told while 16 puts are under way.
//! * **restart**: from the start of the process until the first linearizable get is answered.
//! * **memory, disk**: as `/proc` and `du` tell them. Mapped files are part of the first figure of memory.
//!
//! # What is not
//!
//! A cluster, and a network. And the client takes its part of the processors, most where it watches: where a server
//! leaves little of them to it, or needs little, the rate is the client's. The server's processor time for each
//! operation says more.
#![expect(clippy::expect_used, reason = "a bench that cannot do its work has nothing to measure")]
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::cast_precision_loss, reason = "figures are printed with a few digits")]

mod clients;
#[path = "../../../../tests/support/etcd_process.rs"]
mod etcd_process;
mod fanout;
#[allow(dead_code, reason = "this bench adds none up")]
#[path = "../../../../benches/rivals/latency.rs"]
mod latency;
mod load;
mod options;
mod servers;
mod table;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use load::{Ask, Run};
use options::{Asked, Options};
use servers::{Ending, Server};
use table::{Measure, Target};

/// What is put before there are all keys.
const PUTS: [(&str, Ask, usize); 3] = [
    ("put, 1 client", Ask::Put, 1),
    ("put, 64 clients", Ask::Put, 64),
    ("put, 1,000 clients", Ask::Put, 1000),
];

/// What is asked for when there are.
const REQUESTS: [(&str, Ask, usize); 6] = [
    ("range of 1 key, 1 client", Ask::Range { count: 1, serializable: false }, 1),
    ("range of 1 key, 64 clients", Ask::Range { count: 1, serializable: false }, 64),
    ("range of 1 key, serializable, 64 clients", Ask::Range { count: 1, serializable: true }, 64),
    ("range of 100 keys, 64 clients", Ask::Range { count: 100, serializable: false }, 64),
    ("txn: compare and put, 1 client", Ask::CompareAndPut, 1),
    ("txn: compare and put, 64 clients", Ask::CompareAndPut, 64),
];

const WATCHES: [(&str, usize); 2] = [("watch, 100 watches", 100), ("watch, 1,000 watches", 1000)];

const RESTARTS: [(&str, Ending); 2] =
    [("restart after a kill", Ending::Kill), ("restart after a good end", Ending::Terminate)];

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Test) => return ExitCode::SUCCESS,
        Ok(Asked::Help) => {
            println!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("{problem}\n\n{}", options::HELP);
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime.expect("a runtime"), Bench::run(options));
    ExitCode::SUCCESS
}

#[derive(Debug)]
struct Bench {
    options: Options,
    servers: Vec<Server>,
}

impl Bench {
    async fn run(options: Options) {
        let kinds = servers::kinds(options.ours);
        println!("{}\n{}", table::preamble(&options), table::head(&kinds));
        let mut servers = Vec::new();
        for kind in kinds {
            servers.push(Server::start(kind, &options.dir).await);
        }
        let mut bench = Self { options, servers };
        bench.memory("memory, at the start");
        for (name, ask, clients) in PUTS {
            bench.ask(name, ask, clients).await;
        }
        bench.memory("memory, after the puts");
        let names = REQUESTS.map(|cell| cell.0).into_iter().chain(WATCHES.map(|cell| cell.0));
        let mut names = names.chain(RESTARTS.map(|cell| cell.0)).chain(["load of all keys"]);
        if !names.any(|name| bench.options.wants(name)) {
            return;
        }
        bench.fill().await;
        for (name, ask, clients) in REQUESTS {
            bench.ask(name, ask, clients).await;
        }
        for (name, watches) in WATCHES {
            bench.watch(name, watches).await;
        }
        bench.memory("memory, after everything");
        bench.disk("disk, after everything");
        for (name, ending) in RESTARTS {
            bench.restart(name, ending).await;
        }
        if RESTARTS.iter().any(|cell| bench.options.wants(cell.0)) {
            bench.memory("memory, after a restart");
        }
    }

    /// The servers in the order of a round.
    fn turns(&self, round: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.servers.len();
        (0..count).map(move |turn| (round + turn) % count)
    }

    /// A moment for what the last one has left to do in the background.
    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(if self.options.quick { 0 } else { 300 })).await;
    }

    async fn ask(&self, name: &str, ask: Ask, clients: usize) {
        let Options { keys, seconds, .. } = self.options;
        let one = async |server: &Server| load::run(server, ask, clients, keys, seconds).await;
        self.rounds(name, "ops/s", one).await;
    }

    async fn watch(&self, name: &str, watches: usize) {
        let Options { keys, seconds, .. } = self.options;
        let one = async |server: &Server| fanout::run(server, watches, keys, seconds).await;
        self.rounds(name, "events/s", one).await;
    }

    async fn rounds(&self, name: &str, what: &'static str, one: impl AsyncFn(&Server) -> Run) {
        if !self.options.wants(name) {
            return;
        }
        let mut runs = vec![Vec::new(); self.servers.len()];
        for round in 0..self.options.rounds {
            for turn in self.turns(round) {
                self.pause().await;
                eprintln!("{name}: round {}, {}", round + 1, self.servers[turn].kind.name);
                runs[turn].push(one(&self.servers[turn]).await);
            }
        }
        for measure in table::of_runs(name, what, &runs) {
            println!("{}", measure.row());
        }
    }

    async fn fill(&self) {
        let mut reached = Vec::new();
        for server in &self.servers {
            eprintln!("all keys: {}", server.kind.name);
            reached.push(vec![load::fill(server, self.options.keys).await]);
        }
        let (name, unit) = ("load of all keys, 100 a txn, 8 clients".to_owned(), "keys/s");
        let target = Some(Target::AtLeast(2.0));
        println!("{}", Measure { name, unit, target, reached }.row());
        self.memory("memory, with all keys");
        self.disk("disk, with all keys");
    }

    async fn restart(&mut self, name: &str, ending: Ending) {
        if !self.options.wants(name) {
            return;
        }
        let mut reached = vec![Vec::new(); self.servers.len()];
        for round in 0..self.options.rounds {
            for turn in self.turns(round) {
                self.pause().await;
                let took = self.servers[turn].restart(ending).await;
                reached[turn].push(took.as_secs_f64() * 1e3);
            }
        }
        let (name, unit, target) = (format!("{name}, first get"), "ms", None);
        println!("{}", Measure { name, unit, target, reached }.row());
    }

    fn memory(&self, name: &str) {
        let told: Vec<_> = self.servers.iter().map(Server::memory).collect();
        for (which, unit) in ["MiB resident", "MiB, not of files"].into_iter().enumerate() {
            let reached = told.iter().map(|told| vec![told[which]]).collect();
            let target = (which == 0).then_some(Target::AtMost(0.2));
            println!("{}", Measure { name: name.to_owned(), unit, target, reached }.row());
        }
    }

    fn disk(&self, name: &str) {
        let reached = self.servers.iter().map(|server| vec![server.disk()]).collect();
        let name = name.to_owned();
        println!("{}", Measure { name, unit: "MiB", target: None, reached }.row());
    }
}
