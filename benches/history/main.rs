//! History at scale: what operations cost as a store grows, and what its shape does to them.
//!
//! `cargo bench --bench history` takes some minutes and prints tables of medians; `-- growth`,
//! `-- changed` and so on only one of them (`-- --help`). Ratios are of measurements taken in turns.
//! Other stores are in `benches/peers`.
#![expect(clippy::expect_used, reason = "a bench that cannot do its work has nothing to measure")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints tables")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are read by people"
)]
#![expect(clippy::indexing_slicing, reason = "of lists that are never empty")]

mod chart;
mod growth;
mod large;
mod load;
mod options;
mod shapes;

use std::path::Path;

use chart::Curve;
use growth::{COSTS, Figures, SIZES};
use load::Setup;
use options::{Asked, HELP, Options};
use shapes::Row;

/// Measures one thing.
type Measure = fn(&Options) -> Vec<Row>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, dir, keys, what, setup @ ..] = &args[..]
        && word == "child"
    {
        let mut taken = Setup::default();
        for (name, value) in setup.iter().filter_map(|arg| arg.split_once('=')) {
            taken.take(name, value).expect("taken before");
        }
        load::set_up(taken);
        return growth::in_child(Path::new(dir), keys.parse().expect("a number"), what);
    }
    match Options::parse(args.into_iter()) {
        Ok(Asked::Help) => println!("{HELP}"),
        Ok(Asked::Run(options)) => {
            load::set_up(options.setup.clone());
            run(&options);
        }
        Err(message) => {
            eprintln!("{message}\n\n{HELP}");
            std::process::exit(2);
        }
    }
}

fn run(options: &Options) {
    let tables: [(&str, Measure); 7] = [
        ("opened", growth::opened),
        ("versions", shapes::versions),
        ("changed", shapes::changed),
        ("written", shapes::written),
        ("beside", shapes::beside),
        ("reclaim", shapes::reclaim),
        ("large", large::measure),
    ];
    if tables.iter().any(|(what, _)| options.wants(what)) {
        println!("| measure | reached | asked for |\n|---|---:|---:|");
    }
    for (_, measure) in tables.iter().filter(|(what, _)| options.wants(what)) {
        for (what, reached, target) in measure(options) {
            println!("| {what} | {reached} | {target} |");
        }
    }
    if options.wants("growth") {
        grow(options);
    }
}

fn grow(options: &Options) {
    let stores: Vec<(u64, Figures)> = options
        .versions
        .iter()
        .map(|versions| (*versions, growth::measure(options, *versions)))
        .collect();
    let sizes: Vec<String> = stores.iter().map(|(versions, _)| versions.to_string()).collect();
    println!("\n| versions | {} |", sizes.join(" | "));
    println!("|---|{}", "---:|".repeat(sizes.len()));
    for (name, unit) in COSTS.iter().chain(SIZES) {
        let cell = |(_, figures): &(u64, Figures)| {
            figures.get(*name).map_or("-".to_owned(), |figure| format!("{figure:.2}"))
        };
        let cells: Vec<String> = stores.iter().map(cell).collect();
        println!("| {name} ({unit}) | {} |", cells.join(" | "));
    }
    if let Some(path) = &options.svg {
        let curve = |(name, _): &(&str, &str)| Curve {
            name: (*name).to_owned(),
            points: stores.iter().filter_map(|(n, f)| Some((*n, *f.get(*name)?))).collect(),
        };
        let curves: Vec<Curve> = COSTS.iter().map(curve).collect();
        chart::draw(path, &curves).expect("a picture");
    }
}
