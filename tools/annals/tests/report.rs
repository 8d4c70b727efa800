//! `report` in a real browser: the picture is not blank, light and dark. Skipped, with a message, where there is
//! no chromium.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{SMALL, Tool, history};

/// A store whose keys and values lie in several files of every kind.
fn store() -> Tool {
    let tool = Tool::new();
    let input = history(4_000, 60, 40);
    tool.run_with(&[&SMALL[..], &["import", "history", "-"]].concat(), input.as_bytes()).code(0);
    for key in ["<script>alert(1)</script>/x", "/pods/a"] {
        tool.ok(&["put", key, "value"]);
    }
    tool.ok(&["compact", "--at", "1500", "--confirm"]);
    tool
}

/// What share of the pixels of a picture is not as its first one.
fn drawn(picture: &Path) -> f64 {
    let mut decoder = png::Decoder::new(BufReader::new(File::open(picture).unwrap()));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    assert_eq!((info.width, info.height), (1200, 2400));
    let pixels: Vec<&[u8]> =
        bytes[..info.buffer_size()].chunks(info.color_type.samples()).collect();
    let other = pixels.iter().filter(|pixel| **pixel != pixels[0]).count();
    f64::from(u32::try_from(other * 1_000 / pixels.len()).unwrap()) / 1_000.0
}

fn chromium() -> Option<&'static str> {
    let works = |name: &&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works)
}

#[test]
fn a_browser_shows_the_page() {
    let tool = store();
    let page = tool.path("report.html");
    let told = tool.json(&["report", "--html", page.to_str().unwrap()]);
    let text = std::fs::read_to_string(&page).unwrap();
    assert_eq!(told["bytes"], text.len());
    assert!(text.contains("&lt;script&gt;alert(1)") && !text.contains("<script"));
    let Some(chromium) = chromium() else {
        println!("skipped: there is no chromium here");
        return;
    };
    for dark in [false, true] {
        let picture = tool.path("report.png");
        let mut command = Command::new(chromium);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1200,2400",
        ]);
        command.arg(format!("--user-data-dir={}", tool.path("profile").display()));
        command.arg(format!("--screenshot={}", picture.display()));
        if dark {
            command.args(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]);
        }
        let shot = command.arg(format!("file://{}", page.display())).output().unwrap();
        assert!(shot.status.success(), "{}", String::from_utf8_lossy(&shot.stderr));
        let drawn = drawn(&picture);
        assert!(drawn >= 0.05, "dark: {dark}, only {drawn} of the picture is not ground");
        std::fs::remove_file(&picture).unwrap();
    }
}

/// Damage leaves the page without what cannot be read, and with what can.
#[test]
fn a_damaged_store_has_a_page_too() {
    let tool = store();
    let page = tool.path("report.html");
    let report = ["report", "--html", page.to_str().unwrap()];
    for name in tool.column("file", &["segments"]) {
        let path = tool.store().join(&name);
        let sound = std::fs::read(&path).unwrap();
        for place in [100, sound.len() / 2, sound.len() - 20] {
            let mut bad = sound.clone();
            bad[place] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            let _ = std::fs::remove_file(&page);
            let done = tool.run(&report);
            let said = done.stderr();
            let Some(code @ (0 | 3)) = done.0.status.code() else { panic!("{name} {place}") };
            let text = std::fs::read_to_string(&page);
            let text = text.unwrap_or_else(|_| panic!("{name} {place}: {said}"));
            let file = name.rsplit('/').next().unwrap();
            assert_eq!(
                text.contains("id=\"damage\"") && text.contains(file),
                code == 3,
                "{name} {place}"
            );
            assert!(
                ["figures", "space", "versions", "timeline", "latency"]
                    .iter()
                    .all(|id| text.contains(id))
            );
            // The newest versions are read for the page.
            let is_head = Path::new(&name).extension().is_some_and(|kind| kind == "head");
            assert!(code == 3 || !is_head, "{name} {place}");
        }
        std::fs::write(&path, &sound).unwrap();
    }
    tool.ok(&report);
    assert!(!std::fs::read_to_string(&page).unwrap().contains("id=\"damage\""));
}
