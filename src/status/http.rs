//! Requests and answers of HTTP/1, as far as a server needs them that only answers `GET` and `HEAD`.
//!
//! It takes bytes and returns values. It knows no connection.

use httparse::{EMPTY_HEADER, Error, Header, Status};

/// Longest head of a request: its first line and all headers.
pub(super) const MAX_HEAD_BYTES: usize = 8 << 10;
/// Largest number of headers.
pub(super) const MAX_HEADERS: usize = 64;

/// A request without a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// Bytes of its head.
    pub(crate) length: usize,
    /// Path, without the query.
    pub(crate) path: &'a str,
    /// Set for `HEAD`: the answer has no body.
    pub(super) head_only: bool,
    /// Set if the connection ends after the answer.
    pub(super) close: bool,
}

/// Status line of an answer to a request that is refused. The connection ends after it, because the
/// length of the request is not known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) &'static str);

const BAD_REQUEST: Refusal = Refusal("400 Bad Request");
const BAD_METHOD: Refusal = Refusal("405 Method Not Allowed");
const TOO_LONG: Refusal = Refusal("431 Request Header Fields Too Large");

/// Reads the first request of the input. Returns `None` if more of it must come.
pub(crate) fn parse(input: &[u8]) -> Result<Option<Request<'_>>, Refusal> {
    let head = &input[..input.len().min(MAX_HEAD_BYTES)];
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(head) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if head.len() < MAX_HEAD_BYTES => return Ok(None),
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => return Err(TOO_LONG),
        Err(_) => return Err(BAD_REQUEST),
    };
    let head_only = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(BAD_METHOD),
    };
    let is_latest = request.version == Some(1);
    let has_body = values(request.headers, "transfer-encoding").next().is_some()
        || values(request.headers, "content-length").any(|length| length != b"0");
    // Both rules keep a proxy in front from seeing another request than this server does.
    if has_body || is_latest && values(request.headers, "host").count() != 1 {
        return Err(BAD_REQUEST);
    }
    let wants = |token: &str| {
        values(request.headers, "connection")
            .flat_map(|value| value.split(|&byte| byte == b','))
            .any(|value| value.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    };
    let close = wants("close") || !is_latest && !wants("keep-alive");
    let target = request.path.unwrap_or("");
    let target = target.split('?').next().unwrap_or("");
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |end| &rest[end..]),
        None => target,
    };
    Ok(Some(Request { length, path, head_only, close }))
}

fn values<'a>(headers: &'a [Header<'_>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let has_name = move |header: &&Header<'_>| header.name.eq_ignore_ascii_case(name);
    headers.iter().filter(has_name).map(|header| header.value)
}

/// Head of an answer.
pub(super) fn head(status: &str, kind: &str, length: usize, close: bool) -> String {
    let connection = if close { "close" } else { "keep-alive" };
    let allow = if status == BAD_METHOD.0 { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\n\
         Content-Type: {kind}; charset=utf-8\r\n\
         Content-Length: {length}\r\n\
         Connection: {connection}\r\n\
         Cache-Control: no-store\r\n\
         Content-Security-Policy: {POLICY}\r\n\
         X-Content-Type-Options: nosniff\r\n\
         {allow}\r\n"
    )
}

/// The page loads nothing but itself, and no other page may embed it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_ends_at_the_query_whatever_form_the_target_has() {
        for (target, path) in [
            ("/metrics?a=/b", "/metrics"),
            ("http://host/metrics?a=/b", "/metrics"),
            ("http://host?a=/metrics", "/"),
            ("http://host", "/"),
        ] {
            let input = format!("GET {target} HTTP/1.1\r\nHost: host\r\n\r\n");
            let request = parse(input.as_bytes()).expect("a request").expect("a whole one");
            assert_eq!(request.path, path, "{target}");
        }
    }
}
