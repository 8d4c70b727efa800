//! Writes the inputs of [`annals_fuzz::seeds`] to `corpus/`, beside what is there.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, name, bytes) in annals_fuzz::seeds::all() {
        let dir = corpus.join(target);
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(&name), &bytes)?;
        println!("{target}/{name}: {} bytes", bytes.len());
    }
    Ok(())
}
