//! MySQL's dialect, as far as SQLite does not know it.

mod cursor;
mod scan;
