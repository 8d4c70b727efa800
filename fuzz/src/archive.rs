//! Several files in one input.
//!
//! ```text
//! archive := file*
//! file    := name_bytes u8, name, length u24, run_count u16, run*
//! run     := offset u24, run_bytes u16, that many bytes
//! ```
//!
//! What no run covers is zero, so that preallocated files stay short. Lengths are bounded; an archive
//! that ends early has fewer files.

use crate::input::Input;

/// Largest file, and most bytes of all files together.
pub const BYTES_MAX: usize = 1 << 20;

/// A file by its path within the store's directory.
pub type Files = Vec<(String, Vec<u8>)>;

/// Takes an archive apart.
pub fn unpack(data: &[u8]) -> Files {
    let mut input = Input(data);
    let mut files = Files::new();
    let mut left = BYTES_MAX;
    while !input.is_empty() {
        let name_bytes = usize::from(input.byte() % 64);
        let name = String::from_utf8_lossy(input.bytes(name_bytes)).into_owned();
        let length = u24(&mut input).min(left);
        left -= length;
        let mut bytes = vec![0; length];
        for _ in 0..input.u16() {
            if input.is_empty() {
                break;
            }
            let offset = u24(&mut input);
            let count = usize::from(input.u16());
            let run = input.bytes(count);
            for (to, from) in bytes.iter_mut().skip(offset).zip(run) {
                *to = *from;
            }
        }
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if name.split('/').all(plain) && !files.iter().any(|file| file.0 == name) {
            files.push((name, bytes));
        }
    }
    files
}

/// The archive of these files, whose names and lengths must be in bounds.
pub fn pack(files: &Files) -> Vec<u8> {
    try_pack(files).expect("names and lengths are in bounds")
}

/// The archive of these files; `None` where a name or a length is out of bounds, or a file has too many runs.
pub fn try_pack(files: &Files) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for (name, bytes) in files {
        out.push(u8::try_from(name.len()).ok().filter(|length| *length < 64)?);
        out.extend_from_slice(name.as_bytes());
        if bytes.len() > BYTES_MAX {
            return None;
        }
        out.extend_from_slice(&bytes.len().to_le_bytes()[..3]);
        let runs = runs(bytes);
        out.extend_from_slice(&u16::try_from(runs.len()).ok()?.to_le_bytes());
        for (offset, run) in runs {
            out.extend_from_slice(&offset.to_le_bytes()[..3]);
            out.extend_from_slice(&u16::try_from(run.len()).ok()?.to_le_bytes());
            out.extend_from_slice(run);
        }
    }
    Some(out)
}

/// The parts of a file that are not zero, with gaps of less than a run's head left in.
fn runs(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        match runs.last_mut() {
            Some((start, end)) if at - *end < 8 && at - *start < 60_000 => *end = at + 1,
            _ => runs.push((at, at + 1)),
        }
    }
    runs.into_iter().map(|(start, end)| (start, &bytes[start..end])).collect()
}

fn u24(input: &mut Input<'_>) -> usize {
    usize::from(input.u16()) | usize::from(input.byte()) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_and_unpack_are_inverses() {
        let mut long = vec![0; 100_000];
        long[5..9].fill(1);
        long[20] = 2;
        long[99_999] = 3;
        let files = vec![
            ("CURRENT".to_owned(), vec![1, 2, 3]),
            ("wal/1".to_owned(), long),
            ("e".into(), vec![]),
        ];
        let packed = pack(&files);
        assert!(packed.len() < 100, "{}", packed.len());
        assert_eq!(unpack(&packed), files);
    }

    #[test]
    fn names_do_not_leave_the_directory() {
        let files = vec![("../x".to_owned(), vec![1]), ("a//b".to_owned(), vec![1])];
        assert_eq!(unpack(&pack(&files)), Files::new());
    }
}
