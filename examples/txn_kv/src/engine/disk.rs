//! To be written.
/// To be written.
#[derive(Debug)]
pub struct Disk;
