//! Tells the service manager what happens, where it asked for that by `NOTIFY_SOCKET`.

use std::io;

use crate::{error, info};

/// Tells systemd a state such as `READY=1`.
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    info!("notifying init daemon");
    match send(&path, state) {
        Ok(()) => info!("successfully notified init daemon"),
        Err(reason) => {
            error!("failed to notify systemd for readiness", "error" = reason.to_string());
        }
    }
}

#[cfg(target_os = "linux")]
fn send(path: &std::ffi::OsStr, state: &str) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn send(_: &std::ffi::OsStr, _: &str) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn both_kinds_of_sockets() -> std::io::Result<()> {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixDatagram};

        let folder = tempfile::tempdir()?;
        let path = folder.path().join("notify");
        let name = format!("annals-etcd-{}", std::process::id());
        let named = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let filed = UnixDatagram::bind(&path)?;
        super::send(path.as_os_str(), "READY=1")?;
        super::send(format!("@{name}").as_ref(), "STOPPING=1")?;
        let mut buffer = [0; 32];
        for (socket, text) in [(&filed, "READY=1"), (&named, "STOPPING=1")] {
            let length = socket.recv(&mut buffer)?;
            assert_eq!(buffer.get(..length), Some(text.as_bytes()));
        }
        Ok(())
    }
}
