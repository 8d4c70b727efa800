//! Every byte annals writes.
