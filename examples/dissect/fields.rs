//! The fields of any message by the names of its `.proto` file.

use std::io::{self, Write};
use std::sync::OnceLock;

use epoll_group::codec::kind::{ClientKind, ServerKind};
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, Value};

use super::values::text;

/// Writes the fields that are present, one a line, those of messages inside further in.
pub(crate) fn write(out: &mut impl Write, message: &str, body: &[u8]) -> io::Result<()> {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    let pool = POOL.get_or_init(proto::pool);
    let message = pool.get_message_by_name(message);
    match message.and_then(|message| DynamicMessage::decode(message, body).ok()) {
        Some(message) => fields(out, &message, 1),
        None => Ok(()),
    }
}

fn fields(out: &mut impl Write, message: &DynamicMessage, depth: usize) -> io::Result<()> {
    for (field, value) in message.fields() {
        match value {
            Value::List(values) => {
                for (at, value) in values.iter().enumerate() {
                    one(out, &format!("{}[{at}]", field.name()), &field, value, depth)?;
                }
            }
            value => one(out, field.name(), &field, value, depth)?,
        }
    }
    for field in message.unknown_fields() {
        writeln!(out, "{:1$}field {2} (unknown)", "", INDENT * depth, field.number())?;
    }
    Ok(())
}

fn one(
    out: &mut impl Write,
    name: &str,
    field: &FieldDescriptor,
    value: &Value,
    depth: usize,
) -> io::Result<()> {
    write!(out, "{:1$}{name}: ", "", INDENT * depth)?;
    match value {
        Value::Bool(value) => writeln!(out, "{value}"),
        Value::I32(value) => writeln!(out, "{value}"),
        Value::I64(value) => writeln!(out, "{value}"),
        Value::U32(value) => writeln!(out, "{value}"),
        Value::U64(value) => writeln!(out, "{value}"),
        Value::F32(value) => writeln!(out, "{value}"),
        Value::F64(value) => writeln!(out, "{value}"),
        Value::String(value) => writeln!(out, "{}", text(value.as_bytes())),
        Value::Bytes(value) => writeln!(out, "{}", text(value)),
        Value::EnumNumber(number) => match field.kind() {
            Kind::Enum(values) => match values.get_value(*number) {
                Some(value) => writeln!(out, "{}", value.name()),
                None => writeln!(out, "{number} (unknown)"),
            },
            _ => writeln!(out, "{number}"),
        },
        Value::Message(message) => {
            writeln!(out)?;
            fields(out, message, depth + 1)
        }
        // There are none in this protocol, and a list in a list is nowhere possible.
        Value::List(_) | Value::Map(_) => writeln!(out, "…"),
    }
}

/// What a client's frame of this kind has in its body.
pub(crate) const fn client_message(kind: ClientKind) -> Option<&'static str> {
    Some(match kind {
        ClientKind::CapabilitiesGet => "connection.CapabilitiesGet",
        ClientKind::CapabilitiesSet => "connection.CapabilitiesSet",
        ClientKind::Close => "connection.Close",
        ClientKind::AuthenticateStart => "session.AuthenticateStart",
        ClientKind::AuthenticateContinue => "session.AuthenticateContinue",
        ClientKind::SessionReset => "session.Reset",
        ClientKind::SessionClose => "session.Close",
        ClientKind::StmtExecute | ClientKind::ExecSql => "sql.StmtExecute",
        ClientKind::ExpectOpen => "expect.Open",
        ClientKind::ExpectClose => "expect.Close",
        ClientKind::ExecPlan => "plan.ExecPlan",
        ClientKind::PrepareExecute => "sql.GalaxyPrepareExecute",
        ClientKind::SessionNew => "session.NewSession",
        ClientKind::SessionKill => "session.KillSession",
        ClientKind::TokenOffer => "sql.TokenOffer",
        ClientKind::GetTso => "tso.GetTSO",
        ClientKind::AutoSavepoint => "tso.AutoSp",
        ClientKind::GetFileInfo => "file.GetFileInfoOperator",
        ClientKind::TransferFileData => "file.TransferFileDataOperator",
        ClientKind::ManageFile => "file.FileManageOperator",
        _ => return None,
    })
}

/// What a server's frame of this kind has in its body.
pub(crate) const fn server_message(kind: ServerKind, galaxy: bool) -> Option<&'static str> {
    Some(match kind {
        ServerKind::Ok => "generic.OkReply",
        ServerKind::Error => "generic.ErrorReply",
        ServerKind::Capabilities => "connection.Capabilities",
        ServerKind::AuthenticateContinue => "session.AuthenticateContinue",
        ServerKind::AuthenticateOk => "session.AuthenticateOk",
        ServerKind::Notice => "notice.Frame",
        ServerKind::ColumnMetaData if galaxy => "resultset.ColumnMetaDataCompatible",
        ServerKind::ColumnMetaData => "resultset.ColumnMetaData",
        ServerKind::Row => "resultset.Row",
        ServerKind::FetchDone => "resultset.FetchDone",
        ServerKind::TokenDone => "resultset.TokenDone",
        ServerKind::Tso => "tso.ResultTSO",
        ServerKind::Chunk => "resultset.Chunk",
        ServerKind::FileInfo => "file.GetFileInfoOperator",
        ServerKind::FileData => "file.TransferFileDataOperator",
        ServerKind::FileManaged => "file.FileManageOperatorResponse",
        _ => return None,
    })
}

/// What a notice of this type has in its payload.
pub(crate) const fn notice_message(number: u32) -> Option<&'static str> {
    Some(match number {
        1 => "notice.Warning",
        2 => "notice.SessionVariableChanged",
        3 => "notice.SessionStateChanged",
        _ => return None,
    })
}

/// Spaces of each level.
const INDENT: usize = 4;
