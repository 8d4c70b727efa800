//! The page: its parts, that nothing in a store is markup there, and that it needs nothing else.

use annals::{Latency, Options, Store};
use annals_format::FileKind;
use clap::Parser as _;

use super::facts::{Facts, File, count_version, seconds};
use super::page::page;
use super::plots;
use super::svg::escaped;
use crate::args::Cli;

/// Keys that no page should have as they are.
fn hostile() -> Vec<Vec<u8>> {
    let binary: Vec<u8> = (0..500).map(|n| (n * 7 % 256) as u8).collect();
    let keys: [&[u8]; 5] =
        [b"<script>alert(1)</script>/a", b"\"'&amp;/a", b"\x1b[31m/a", b"]]>--></svg>/a", &binary];
    keys.iter().map(|key| key.to_vec()).collect()
}

fn facts(keys: &[Vec<u8>]) -> Facts {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().block_bytes(512).background(false);
    let store: Store = options.open(directory.path().join("<b>")).unwrap();
    for round in 0..30_u8 {
        for key in keys {
            let key = [key.as_slice(), &[round]].concat();
            store.put(&key, [b'v'; 200]).unwrap();
            store.put(&key, [round; 200]).unwrap();
        }
    }
    store.reorganise().unwrap();
    store.compact(20).unwrap();
    store.put("last", "").unwrap();
    store.close().unwrap();
    let path = directory.path().join("<b>");
    let cli =
        Cli::try_parse_from(["annals".as_ref(), "-C".as_ref(), path.as_os_str(), "stats".as_ref()]);
    Facts::gather(&cli.unwrap().global, 1).unwrap()
}

/// Every tag of a page, in order, without what is in it.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split([' ', '>', '\n']).next().unwrap()).collect()
}

#[test]
fn a_page_has_all_its_parts_and_every_tag_is_closed() {
    let facts = facts(&[b"/pods/".to_vec(), b"/events/".to_vec()]);
    let page = page(&facts);
    for part in ["figures", "space", "versions", "timeline", "latency"] {
        assert_eq!(page.matches(&format!("id=\"{part}\"")).count(), 1, "{part}");
    }
    for said in [
        "/pods/",
        "/events/",
        "compacted to 20",
        "newest revision",
        "Not recorded.",
        "live_interval_seconds(1)",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let mut open = Vec::new();
    for tag in tags(&page) {
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed)),
            None if ["!doctype", "meta", "line"].contains(&tag) => {}
            None => open.push(tag),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn nothing_of_a_store_is_markup() {
    let (tame, wild) = (page(&facts(&[b"/a/".to_vec()])), page(&facts(&hostile())));
    let kinds = |page: &str| {
        tags(page).into_iter().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(kinds(&tame), kinds(&wild));
    assert!(wild.contains("&lt;script&gt;alert(1)&lt;/</text>"), "{wild}");
    assert!(wild.contains("&lt;b&gt;") && !wild.contains('\x1b'), "the directory, too");
    let longest = wild.lines().map(str::len).max().unwrap();
    assert!(longest < 1_500, "keys are cut: {longest}");
}

#[test]
fn it_needs_no_script_and_nothing_from_elsewhere() {
    let page = page(&facts(&[b"/a/".to_vec()]));
    for word in ["<script", "http:", "https:", "src=", "href=", "url(", "@import", "<link", "<img"]
    {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("default-src 'none'") && page.contains("prefers-color-scheme: dark"));
}

#[test]
fn latency_is_shown_where_a_program_tells_it() {
    let mut facts = facts(&[b"/a/".to_vec()]);
    let commits = Latency::of(vec![(1_000, 90), (5_000, 9), (3_000_000, 1)], 2_500_000);
    facts.latency = Ok((commits, Latency::default()));
    let page = page(&facts);
    assert!(
        page.contains("half took up to 1.00 us, 99 of 100 up to 5.00 us, the longest 2.50 ms"),
        "{page}"
    );
    assert!(page.contains("None was measured.") && !page.contains("Not recorded"), "{page}");
    assert!(page.contains(">1.02 us: 90 (90.0 %)"), "{page}");
}

#[test]
fn numbers_of_versions_are_told_by_doublings() {
    let mut counts = Vec::new();
    for version in [1, 1, 2, 3, 4, 5, 8, 9, 1_000_000, 0] {
        count_version(&mut counts, version);
    }
    assert_eq!(&counts[..5], [3, 1, 2, 2, 1]);
    assert_eq!((counts.len(), counts[20]), (21, 1));
    let plot = plots::versions(&counts);
    assert!(
        plot.contains("to 4: 2 (20.0 %)") && plot.contains("to 1,048,576: 1 (10.0 %)"),
        "{plot}"
    );
}

#[test]
fn files_that_overlap_lie_in_rows_and_too_many_are_counted() {
    let file = |number, from, upto| File {
        kind: FileKind::Head,
        number,
        bytes: 10 * number,
        span: (from, upto),
    };
    let apart = plots::timeline(&[file(1, 1, 50), file(2, 51, 100)], 100, 0);
    let heights = |plot: &str| plot.matches(" y=\"").count();
    assert!(
        heights(&apart) > 0 && !apart.contains("more that overlap") && !apart.contains("compacted"),
        "{apart}"
    );
    let same: Vec<File> = (1..=20).map(|number| file(number, 1, 100)).collect();
    let plot = plots::timeline(&same, 100, 60);
    assert!(plot.contains("and 12 more that overlap these"), "{plot}");
    assert!(plot.contains("compacted to 60"), "{plot}");
    assert!(!plots::timeline(&[], 1, 0).contains("NaN"));
}

#[test]
fn what_could_end_a_text_is_escaped() {
    assert_eq!(escaped("a<b>&\"'\u{1}\n"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\u{fffd}");
}

#[test]
fn times_are_told_to_the_second() {
    assert_eq!(seconds(1_700_000_000_999_999), "2023-11-14 22:13:20 UTC");
}

#[test]
fn keys_are_cut_where_the_figures_beside_them_begin() {
    assert_eq!(plots::fitting("/pods/", 6), "/pods/");
    assert_eq!(plots::fitting("/pods/a", 6), "/pods/...");
    assert_eq!(plots::fitting("\u{e9}\u{e9}\u{e9}a", 5), "\u{e9}\u{e9}...");
    let page = page(&facts(&hostile()));
    let names = page.lines().filter_map(|line| line.strip_prefix("<text class=\"key\" x=\"0.0\""));
    let names: Vec<&str> = names.filter_map(|line| line.split(['>', '<']).nth(1)).collect();
    assert!(names.iter().any(|name| name.ends_with("...")), "{names:?}");
    // An entity is one letter.
    let letters = |name: &&str| {
        name.split('&').map(|part| part.split(';').next_back().unwrap().len() + 1).sum::<usize>()
    };
    assert!(names.iter().map(letters).all(|letters| letters <= 80), "{names:?}");
}
