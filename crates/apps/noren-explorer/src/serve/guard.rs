//! The checks whether a request comes from the explorer's own page, and the security headers of responses.

use crate::serve::http::{Head, Response};

/// The host names and origins of this server. A request from the explorer's page has one of these host names in the
/// header `Host`.
pub(crate) struct Own {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Own {
    pub(crate) fn new(port: u16) -> Self {
        let names = ["127.0.0.1", "localhost"];
        let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
        if port == 80 {
            // Browsers leave out the default port.
            hosts.extend(names.map(String::from));
        }
        Own { origins: hosts.iter().map(|host| format!("http://{host}")).collect(), hosts }
    }
}

/// Returns the reason to refuse a request; `None` if the request may come from the explorer's page. The header `Host`
/// must be an address of this server, because a foreign host name may resolve to this machine. The headers `Origin` and
/// `Sec-Fetch-Site` must not name another site; only a link that opens the page may be on another site.
pub(crate) fn refused(own: &Own, head: &Head) -> Option<&'static str> {
    let one = |name| {
        let mut all = head.all(name);
        let first = all.next();
        if all.next().is_some() { Some(&b"twice"[..]) } else { first }
    };
    let host = one("host");
    if !own.hosts.iter().any(|name| host.is_some_and(|host| host.eq_ignore_ascii_case(name.as_bytes()))) {
        return Some("the explorer answers only requests to 127.0.0.1 or localhost");
    }
    let origin = one("origin");
    if origin.is_some_and(|origin| !own.origins.iter().any(|name| origin.eq_ignore_ascii_case(name.as_bytes()))) {
        return Some("the explorer answers only requests of its own page");
    }
    let site = one("sec-fetch-site");
    let foreign = site.is_some_and(|site| site != b"same-origin" && site != b"none");
    let visit = head.method == "GET" && head.path == "/";
    if foreign && !visit {
        return Some("the explorer answers only requests of its own page");
    }
    None
}

/// The name of a request header of the page. Error responses to requests with this header have status 200, and the
/// error status is in the response header `x-noren-status`. Reason: browsers log every error status in their console,
/// and a mask is often invalid while the user types.
const ERRORS: &str = "x-noren-errors";

/// Adds the security headers to a response. If the request has the header [`ERRORS`] and the response has an error
/// status, the response receives the status 200, and the header `x-noren-status` has the error status.
pub(crate) fn harden(head: &Head, mut response: Response) -> Response {
    if response.status >= 400 && head.header(ERRORS) == Some(b"200") {
        let status = response.status.to_string();
        response = response.header("x-noren-status", status);
        response.status = 200;
    }
    protect(response)
}

/// Adds the security headers to a response. With these headers, the page loads only files of this server, and no other
/// site can embed the page.
pub(crate) fn protect(response: Response) -> Response {
    let policy = "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; object-src 'none'; base-uri 'none'; \
                  form-action 'none'; frame-ancestors 'none'";
    response
        .header("content-security-policy", policy)
        .header("x-content-type-options", "nosniff")
        .header("referrer-policy", "no-referrer")
        .header("x-frame-options", "DENY")
        .header("cross-origin-resource-policy", "same-origin")
        .header("cross-origin-opener-policy", "same-origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, path: &str, headers: &[(&str, &str)]) -> bool {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = Head::parse(format!("{method} {path} HTTP/1.1\r\n{lines}\r\n").as_bytes()).expect("a head");
        refused(&Own::new(8080), &head).is_none()
    }

    #[test]
    fn only_this_page_is_answered() {
        let host = ("host", "127.0.0.1:8080");
        assert!(ask("GET", "/", &[host]));
        assert!(ask("POST", "/api/masks", &[("Host", "localhost:8080"), ("origin", "http://localhost:8080")]));
        for headers in [
            &[][..],
            &[("host", "evil.example")],
            &[("host", "127.0.0.1:8081")],
            &[host, ("host", "evil.example")],
            &[host, ("origin", "http://evil.example")],
            &[host, ("origin", "null")],
            &[host, ("origin", "https://127.0.0.1:8080")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-site")],
        ] {
            assert!(!ask("POST", "/api/masks", headers), "{headers:?}");
        }
        // A link on another site may open the page, but no other path.
        assert!(ask("GET", "/", &[host, ("sec-fetch-site", "cross-site")]));
        assert!(!ask("GET", "/api/presets", &[host, ("sec-fetch-site", "cross-site")]));
    }
}
