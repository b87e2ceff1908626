//! Columns of the rows between two nodes.

use epoll_group::codec::column::Column;

use super::types::Type;

/// A column: its label, its type, and where it comes from if it is one of a table.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) label: Vec<u8>,
    pub(super) ty: Type,
    pub(super) origin: Option<Origin>,
}

/// The column of a table that a field is.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) column: Vec<u8>,
    pub(super) table: Vec<u8>,
    pub(super) schema: Vec<u8>,
}

impl Field {
    /// What an expression gives.
    pub(super) const fn computed(label: Vec<u8>, ty: Type) -> Self {
        Self { label, ty, origin: None }
    }

    /// The same under another name.
    pub(super) fn labelled(&self, label: &[u8]) -> Self {
        Self { label: label.to_vec(), ..self.clone() }
    }

    /// As the client is told of it.
    pub(super) fn column(&self) -> Column<'_> {
        let mut column = self.ty.column;
        column.name = Some(&self.label);
        if let Some(origin) = &self.origin {
            column.original_name = Some(&origin.column);
            column.table = Some(&origin.table);
            column.original_table = Some(&origin.table);
            column.schema = Some(&origin.schema);
        }
        column
    }
}
