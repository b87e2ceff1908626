//! What statements are read as.
