//! File systems in images on a tmpfs, by loop devices: real ones, whose power can be cut, and which can run out
//! of room below.
//!
//! Dropping one gives back its mounts and its loop device, also when a test fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sys;

/// Why something cannot be had here.
pub type Skip = String;

/// A tmpfs of its own.
#[derive(Debug)]
pub struct Tmpfs {
    dir: tempfile::TempDir,
}

/// A file system in an image on a tmpfs.
#[derive(Debug)]
pub struct Image {
    device: String,
    mounted: bool,
    // Below what is above: dropped last.
    tmpfs: Tmpfs,
}

/// Runs a command of the system.
fn run(line: &[&str]) -> Result<String, Skip> {
    let output = Command::new(line[0]).args(&line[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", line[0]))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", line.join(" "), why.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Tmpfs {
    /// Fails with why not, where this machine cannot do it.
    pub fn new(size: &str) -> Result<Self, Skip> {
        if !sys::is_root() {
            return Err("only root may mount".to_owned());
        }
        let dir = tempfile::Builder::new().prefix("annals-kernel-").tempdir().unwrap();
        let size = format!("size={size}");
        run(&["mount", "-t", "tmpfs", "-o", &size, "annals-kernel", text(dir.path())])?;
        Ok(Self { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        if let Err(why) = run(&["umount", text(self.dir.path())])
            .or_else(|_| run(&["umount", "-l", text(self.dir.path())]))
        {
            eprintln!("{why}");
        }
    }
}

impl Image {
    /// Makes a file system of `bytes` with `mkfs` on a tmpfs of `room`, and mounts it.
    pub fn new(mkfs: &[&str], bytes: u64, room: &str) -> Result<Self, Skip> {
        let tmpfs = Tmpfs::new(room)?;
        let file = tmpfs.path().join("image");
        std::fs::File::create(&file).unwrap().set_len(bytes).unwrap();
        run(&[mkfs, &[text(&file)]].concat())?;
        let device = run(&["losetup", "-f", "--show", text(&file)])?;
        let mut image = Self { device, mounted: false, tmpfs };
        std::fs::create_dir(image.root()).unwrap();
        image.mount()?;
        Ok(image)
    }

    /// Where it is mounted.
    pub fn root(&self) -> PathBuf {
        self.tmpfs.path().join("mounted")
    }

    /// The file that it is in.
    pub fn file(&self) -> PathBuf {
        self.tmpfs.path().join("image")
    }

    /// The tmpfs that this file is on.
    pub fn below(&self) -> &Path {
        self.tmpfs.path()
    }

    fn mount(&mut self) -> Result<(), Skip> {
        run(&["mount", &self.device, text(&self.root())])?;
        self.mounted = true;
        Ok(())
    }

    /// Takes it away and mounts it again: what is in no image is gone.
    pub fn remount(&mut self) {
        // What a killed process held is given back soon; so is what this one has read, which its
        // threads pass on to each other before it is dropped.
        for attempt in 1.. {
            match run(&["umount", text(&self.root())]) {
                Ok(_) => break,
                Err(why) => assert!(attempt < 2_000, "{why}"),
            }
            sys::let_go();
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        self.mounted = false;
        self.mount().unwrap();
    }

    /// Cuts the power: everything fails until it is mounted again.
    pub fn cut(&self) -> Result<(), Skip> {
        sys::cut_power(&self.root()).map_err(|error| format!("FS_IOC_SHUTDOWN: {error}"))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted
            && let Err(why) = run(&["umount", text(&self.root())])
                .or_else(|_| run(&["umount", "-l", text(&self.root())]))
        {
            eprintln!("{why}");
        }
        if let Err(why) = run(&["losetup", "-d", &self.device]) {
            eprintln!("{why}");
        }
    }
}
