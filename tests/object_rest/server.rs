//! The server of the example, in a thread of the test.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use annals::vfs::MemoryVfs;
use annals::{Options, Store};

use crate::kube_api::{self, Limits};

/// Starts a server of an empty store, which ends with the process.
pub(crate) fn start(limits: Limits) -> SocketAddr {
    let options = Options::new().vfs(Arc::new(MemoryVfs::new()));
    let store: Arc<Store> = Arc::new(options.open("store").expect("a fresh store opens"));
    let (told, address) = mpsc::channel();
    thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        // Few, so that whatever takes one for good is found.
        let runtime = runtime.enable_io().max_blocking_threads(2).build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            told.send(listener.local_addr().expect("its address")).expect("the test waits");
            kube_api::serve(listener, store, limits).await.expect("it serves");
        });
    });
    address.recv().expect("it listens")
}
