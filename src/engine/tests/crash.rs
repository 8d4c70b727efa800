//! Power cuts and failing operations.
