//! The page around the plots.

use annals::Latency;

use crate::bytes::human;
use crate::numbers::{duration, grouped};

use super::facts::Facts;
use super::plots;
use super::svg::escaped;

/// Light and dark, as whoever looks at it has it.
const STYLE: &str = include_str!("page.css");

/// The whole page.
pub(crate) fn page(facts: &Facts) -> String {
    let name = escaped(&facts.store);
    let mut body = format!(
        "<header><h1>annals store <span>{name}</span></h1><p>as of {}, identity {}</p></header>\n",
        escaped(&facts.made),
        escaped(&facts.id)
    );
    body += &damage(facts);
    body += &figures(facts);
    body += &space(facts);
    body += &versions(facts);
    body += &timeline(facts);
    body += &latency(facts);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>annals: {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// A part of the page.
fn section(id: &str, title: &str, text: &str, plot: &str) -> String {
    format!("<section id=\"{id}\">\n<h2>{title}</h2>\n<p>{text}</p>\n{plot}</section>\n")
}

fn damage(facts: &Facts) -> String {
    if facts.damage.is_empty() {
        return String::new();
    }
    let places = facts.damage.iter().map(|place| format!("<li>{}</li>\n", escaped(place)));
    let list = format!("<ul>\n{}</ul>\n", places.collect::<String>());
    let text = "Something of what follows could not be read, and is missing or counts less than there is. \
                <code>annals verify</code> lists all damage.";
    section("damage", "Damage", text, &list)
}

fn figures(facts: &Facts) -> String {
    let stats = &facts.stats;
    let oldest = if stats.compacted_revision == 0 {
        "never".to_owned()
    } else {
        grouped(stats.compacted_revision)
    };
    let tiles = [
        ("newest revision", grouped(stats.revision)),
        ("made", facts.newest.clone().unwrap_or_else(|| "-".to_owned())),
        ("keys alive", facts.keys.map_or_else(|| "-".to_owned(), grouped)),
        ("compacted to", oldest),
        ("on disk", human(facts.disk_bytes)),
        ("newest versions", human(stats.live_bytes)),
        ("past versions", human(stats.history_bytes)),
        ("what changed", human(stats.event_bytes)),
        ("dead, to be given back", human(stats.dead_bytes)),
        ("log", human(stats.wal_bytes)),
    ];
    let tiles = tiles
        .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escaped(&value)));
    format!("<dl id=\"figures\">\n{}</dl>\n", tiles.concat())
}

fn legend(entries: &[(&str, &str)]) -> String {
    let entries =
        entries.iter().map(|(class, what)| format!("<span class=\"{class}\">{what}</span>"));
    format!("<div class=\"legend\">{}</div>\n", entries.collect::<String>())
}

fn space(facts: &Facts) -> String {
    if facts.space.prefixes.is_empty() {
        return section(
            "space",
            "Space by prefix",
            "No keys are in files yet: what there is is in the log.",
            "",
        );
    }
    let plot = legend(&[("live", "newest versions"), ("past", "past versions"), ("dead", "dead")]);
    let text =
        "Which keys take the room in the files. Files of what changed and the log are not in it.";
    section("space", "Space by prefix", text, &(plot + &plots::space(&facts.space)))
}

fn versions(facts: &Facts) -> String {
    let looked_at = grouped(facts.looked_at);
    let text = match facts.keys {
        Some(keys) if keys == facts.looked_at => {
            format!("How often each of the {looked_at} keys was written since it was created.")
        }
        keys => {
            let of = keys.map_or_else(|| "all".to_owned(), grouped);
            format!(
                "How often keys were written since they were created: the first {looked_at} of {of}."
            )
        }
    };
    let plot =
        if facts.versions.is_empty() { String::new() } else { plots::versions(&facts.versions) };
    section("versions", "Versions of a key", &text, &plot)
}

fn timeline(facts: &Facts) -> String {
    let text = format!(
        "{} files by the revisions they hold; of history, when its versions were superseded. \
         The larger the file the fuller its colour.",
        grouped(facts.files.len() as u64)
    );
    let stats = &facts.stats;
    let plot = plots::timeline(&facts.files, stats.revision, stats.compacted_revision);
    section("timeline", "Segments and windows", &text, &plot)
}

fn latency(facts: &Facts) -> String {
    let title = "How long commits take";
    let (commit, sync) = match &facts.latency {
        Ok(both) => both,
        Err(why) => {
            return section("latency", title, &format!("Not recorded. {}", escaped(why)), "");
        }
    };
    let mut plot = String::new();
    for (what, latency) in [("commits", commit), ("syncs of the log", sync)] {
        plot += &["<h3>", what, "</h3>\n<p>", &quantiles(latency), "</p>\n"].concat();
        if latency.count > 0 {
            plot += &plots::latency(latency, &format!("how long {what} took"));
        }
    }
    let text = "Since the program that has the store open has opened it. Of commits that wait for no sync one in 64 is measured.";
    section("latency", title, text, &plot)
}

fn quantiles(latency: &Latency) -> String {
    if latency.count == 0 {
        return "None was measured.".to_owned();
    }
    let [half, most, max] = [latency.p50_nanos, latency.p99_nanos, latency.max_nanos].map(duration);
    format!(
        "{} measured: half took up to {half}, 99 of 100 up to {most}, the longest {max}.",
        grouped(latency.count)
    )
}
