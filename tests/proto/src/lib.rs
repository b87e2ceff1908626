//! The `.proto` files of the crate, read without a `protoc`.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use epoll_group::codec::message::{ClientKind, ServerKind};
use prost_reflect::DescriptorPool;

/// Folder of the crate.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every `.proto` file, in a fixed order.
pub fn files() -> Vec<PathBuf> {
    let folder = root().join("tests/proto/files");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder of the .proto files is there")
        .map(|entry| entry.expect("its entries can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "proto"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no .proto file in {}", folder.display());
    files
}

/// Messages and fields of the files.
pub fn pool() -> &'static DescriptorPool {
    static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
        let mut compiler = protox::Compiler::new([root().join("tests/proto/files")])
            .expect("the folder of the .proto files is there");
        compiler.include_source_info(true);
        compiler.open_files(files()).expect("the .proto files are right");
        compiler.descriptor_pool()
    });
    &POOL
}

/// Every kind of a client's message.
pub fn client_kinds() -> impl Iterator<Item = ClientKind> {
    (0..=u8::MAX).filter_map(ClientKind::from_number)
}

/// Every kind of a server's message. Second numbers of kinds begin at 100.
pub fn server_kinds() -> impl Iterator<Item = ServerKind> {
    (0..100).filter_map(ServerKind::from_number)
}

/// Message in the body of a client's frame; `None` for the kinds that no file describes.
pub const fn client_message(kind: ClientKind) -> Option<&'static str> {
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

/// Message in the body of a server's frame, with the older or the newer description of columns.
pub const fn server_message(kind: ServerKind, galaxy: bool) -> Option<&'static str> {
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
        ServerKind::FetchSuspended => "resultset.FetchSuspended",
        ServerKind::FetchDoneMoreResultsets => "resultset.FetchDoneMoreResultsets",
        ServerKind::StmtExecuteOk => "sql.StmtExecuteOk",
        ServerKind::FetchDoneMoreOutParams => "resultset.FetchDoneMoreOutParams",
        ServerKind::TokenDone => "resultset.TokenDone",
        ServerKind::Tso => "tso.ResultTSO",
        ServerKind::Chunk => "resultset.Chunk",
        ServerKind::FileInfo => "file.GetFileInfoOperator",
        ServerKind::FileData => "file.TransferFileDataOperator",
        ServerKind::FileManaged => "file.FileManageOperatorResponse",
        _ => return None,
    })
}

/// Message in the payload of a notice.
pub const fn notice_message(number: u32) -> Option<&'static str> {
    Some(match number {
        1 => "notice.Warning",
        2 => "notice.SessionVariableChanged",
        3 => "notice.SessionStateChanged",
        _ => return None,
    })
}
