//! The binary `annals-etcd`.

use std::path::PathBuf;
use std::sync::Arc;

use annals_etcd::auth::Auth;
use annals_etcd::member::Member;
use annals_etcd::server::{Server, ServerOptions, router};

/// Stands in until there are flags: `annals-etcd DIRECTORY ADDRESS`.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let directory = PathBuf::from(args.next().ok_or("a directory")?);
    let address = args.next().ok_or("an address")?;
    std::fs::create_dir_all(&directory)?;
    let store = annals::Store::open(directory.join("store"))?;
    let auth = Auth::open(&directory)?;
    let member = Member::open(&directory, "default".into(), vec![format!("http://{address}")])?;
    let options = ServerOptions::new(&directory);
    let server = Server::new(store, auth, member, options);
    let looking = Arc::clone(&server);
    std::thread::spawn(move || {
        loop {
            looking.alarms().look(looking.store());
            std::thread::sleep(annals_etcd::alarm::LOOK_EVERY);
        }
    });
    let listener = tokio::net::TcpListener::bind(&address).await?;
    eprintln!("ready to serve client requests on {address}");
    axum::serve(listener, router(&server)).await?;
    Ok(())
}
