//! annals.
