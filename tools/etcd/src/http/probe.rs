//! What health and metrics learn of the server.

use crate::http::Probe;
use crate::server::Server;

impl Probe for Server {
    fn alarms(&self) -> Vec<String> {
        self.alarms.all().into_iter().map(|alarm| alarm.as_str_name().to_owned()).collect()
    }

    fn read(&self) -> Result<(), String> {
        // A store that accepts no writes is read still, but it is not well.
        if let Some(failure) = self.store.stats().failure {
            return Err(failure);
        }
        self.store.get(b"\0").map(drop).map_err(|error| error.to_string())
    }

    fn auth_enabled(&self) -> bool {
        self.auth.is_enabled()
    }

    fn member_id(&self) -> u64 {
        self.member.id
    }

    fn stats(&self) -> Option<annals::Stats> {
        Some(self.store.stats())
    }
}
