//! The checks whether a request comes from the explorer's own page, and the security headers of responses.

use crate::serve::http::Response;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

/// Returns the values of the header `Host` in requests from the explorer's page, if the server listens on `port`.
pub(crate) fn hosts(port: u16) -> Vec<String> {
    let names = ["127.0.0.1", "localhost"];
    let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
    if port == 80 {
        // Browsers leave out the default port.
        hosts.extend(names.map(String::from));
    }
    hosts
}

/// Returns the reason to refuse a request; `None` if the request may come from the explorer's page. The header `Host`
/// must be an address of this server, because a foreign host name may resolve to this machine. The headers `Origin` and
/// `Sec-Fetch-Site` must not name another site; only a link that opens the page may be on another site.
pub(crate) fn refused(hosts: &[String], head: &Parts) -> Option<&'static str> {
    let one = |name| {
        let mut all = head.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let first = all.next();
        if all.next().is_some() { Some(&b"twice"[..]) } else { first }
    };
    let is_own = |name: &[u8]| hosts.iter().any(|host| name.eq_ignore_ascii_case(host.as_bytes()));
    // A request to a proxy has a whole address in place of a path.
    if !one("host").is_some_and(is_own) || head.uri.host().is_some() {
        return Some("the explorer answers only requests to 127.0.0.1 or localhost");
    }
    if one("origin").is_some_and(|origin| !origin.strip_prefix(b"http://").is_some_and(is_own)) {
        return Some("the explorer answers only requests of its own page");
    }
    let site = one("sec-fetch-site");
    let foreign = site.is_some_and(|site| site != b"same-origin" && site != b"none");
    let visit = head.method == Method::GET && head.uri.path() == "/";
    if foreign && !visit {
        return Some("the explorer answers only requests of its own page");
    }
    None
}

/// The name of a request header of the page. Error responses to requests with this header have status 200, and the
/// error status is in the response header `x-noren-status`. Reason: browsers log every error status in their console,
/// and a mask is often invalid while the user types.
const ERRORS: &str = "x-noren-errors";

/// The security headers of a response. With these headers, the page loads only files of this server, and no other site
/// can embed the page.
const SECURITY: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; object-src 'none'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// Adds the security headers to a response. If the request has the header [`ERRORS`] and the response has an error
/// status, the response receives the status 200, and the header `x-noren-status` has the error status.
pub(crate) fn harden(head: &Parts, mut response: Response) -> Response {
    let status = response.status();
    if status.as_u16() >= 400 && head.headers.get(ERRORS).is_some_and(|value| value == "200") {
        response.headers_mut().insert("x-noren-status", status.as_u16().into());
        *response.status_mut() = StatusCode::OK;
    }
    let headers = SECURITY.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}
