//! [`Hub`]: downloads from the Hugging Face hub with the program `curl`, which uses the certificates and proxies of the
//! machine.

use super::cache::{Cache, Repo};
use std::fs::{self, File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A result whose error is a message for the user.
type Result<T> = std::result::Result<T, String>;

/// The arguments of every call of `curl`: ignore the user's settings, which could change the output; fail on HTTP
/// errors; follow redirections; end a transfer without progress after a minute. Further settings are read from standard
/// input, so that other users of the machine cannot see the access token.
const CURL: [&str; 15] = [
    "--disable",
    "--config",
    "-",
    "--fail",
    "--location",
    "--proto",
    "=http,https",
    "--connect-timeout",
    "20",
    "--speed-limit",
    "1",
    "--speed-time",
    "60",
    "--user-agent",
    concat!("noren/", env!("CARGO_PKG_VERSION")),
];

/// The address of the hub and the access token for it.
pub(super) struct Hub {
    endpoint: String,
    token: Option<String>,
}

/// The response headers of a file on the hub.
struct About {
    /// The ETag of the content. The cache stores the content in a file with this name.
    etag: String,
    commit: String,
    bytes: u64,
}

impl Hub {
    /// Creates a connection to the hub at the address `HF_ENDPOINT` [default: https://huggingface.co]. Requests use the
    /// access token in `HF_TOKEN`, or the access token in the cache.
    pub(super) fn new(cache: &Cache) -> Hub {
        let endpoint = std::env::var("HF_ENDPOINT").unwrap_or_else(|_| "https://huggingface.co".to_owned());
        let token = std::env::var("HF_TOKEN").ok().or_else(|| cache.token());
        Hub { endpoint: endpoint.trim_end_matches('/').to_owned(), token }
    }

    /// Returns the names of a model's files.
    pub(super) fn files(&self, name: &str) -> Result<Vec<String>> {
        let list =
            self.curl(&format!("/api/models/{name}/revision/main"), &["--silent", "--show-error"], Stdio::piped())?;
        let list: serde_json::Value = serde_json::from_slice(&list)
            .map_err(|e| format!("the list of the model's files is not valid JSON: {e}"))?;
        let files = list["siblings"]
            .as_array()
            .ok_or("the list of the model's files is not valid: it has no field `siblings`")?;
        Ok(files.iter().filter_map(|file| file["rfilename"].as_str().map(str::to_owned)).collect())
    }

    /// Downloads a file, or the missing bytes of a file, and returns the path of the file in the cache.
    pub(super) fn get(&self, repo: &Repo, name: &str, file: &str) -> Result<PathBuf> {
        let url = format!("/{name}/resolve/main/{file}");
        let About { etag, commit, bytes } = self.about(&url)?;
        let broken = |e: std::io::Error| format!("{file} cannot be written to the cache: {e}");
        let [blob, part] = repo.blob(&etag).map_err(broken)?;
        let is_whole = || fs::metadata(&blob).is_ok_and(|about| about.len() == bytes);
        if !is_whole() {
            let mut out = OpenOptions::new().create(true).append(true).open(&part).map_err(broken)?;
            // The lock waits for another process that downloads this file.
            out.lock().map_err(broken)?;
            if !is_whole() {
                self.append(&url, &mut out, bytes)?;
                fs::rename(&part, &blob).map_err(broken)?;
            }
        }
        repo.link(&commit, file, &blob).map_err(broken)
    }

    /// Downloads the bytes that `out` does not contain yet, and appends them to `out`. `bytes` is the length of the
    /// whole file.
    fn append(&self, url: &str, out: &mut File, bytes: u64) -> Result<()> {
        let broken = |e: std::io::Error| format!("the cache cannot be written: {e}");
        let known = out.metadata().map_err(broken)?.len();
        if known < bytes {
            let range = format!("{known}-");
            let quiet = ["--silent", "--show-error", "--range", &range];
            let shown = ["--progress-bar", "--range", &range];
            let options = if std::io::stderr().is_terminal() { &shown[..] } else { &quiet };
            self.curl(url, options, out.try_clone().map_err(broken)?.into())?;
        }
        match out.metadata().map_err(broken)?.len() {
            held if held == bytes => Ok(()),
            held => {
                out.set_len(0).map_err(broken)?;
                Err(format!("{held} bytes were received instead of {bytes}: try again"))
            }
        }
    }

    /// Requests the first byte of a file and returns the response headers.
    fn about(&self, url: &str) -> Result<About> {
        let options = ["--silent", "--show-error", "--range", "0-0", "--output", NOWHERE, "--dump-header", "-"];
        let heads = self.curl(url, &options, Stdio::piped())?;
        let heads = String::from_utf8_lossy(&heads);
        let lines: Vec<(&str, &str)> = heads.lines().filter_map(|line| line.split_once(':')).collect();
        // After a redirection there are several groups of headers; the first group has the ETag of the content.
        let named = |name: &'static str| lines.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name));
        let header = |name| named(name).map(|(_, value)| value.trim());
        let missing = |name: &str| format!("the response has no header {name}");
        let etag =
            header("x-linked-etag").next().or_else(|| header("etag").next_back()).ok_or_else(|| missing("etag"))?;
        let etag = etag.trim_start_matches("W/").trim_matches('"');
        let commit = header("x-repo-commit").next().ok_or_else(|| missing("x-repo-commit"))?;
        for name in [etag, commit] {
            if !name.starts_with(|c: char| c.is_ascii_alphanumeric())
                || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            {
                return Err(format!("the header {name:?} of the response for the file is not valid"));
            }
        }
        let bytes = header("content-range").next_back().and_then(|range| range.rsplit_once('/')?.1.parse().ok());
        let bytes = bytes.or_else(|| header("x-linked-size").next()?.parse().ok());
        Ok(About { etag: etag.into(), commit: commit.into(), bytes: bytes.ok_or_else(|| missing("content-range"))? })
    }

    /// Requests a path of the hub with `curl`. If `out` is a pipe, returns the downloaded bytes; otherwise returns no
    /// bytes.
    fn curl(&self, path: &str, options: &[&str], out: Stdio) -> Result<Vec<u8>> {
        let mut settings = format!("url = {}\n", quoted(&format!("{}{path}", self.endpoint))?);
        if let Some(token) = &self.token {
            settings += &format!("header = {}\n", quoted(&format!("Authorization: Bearer {token}"))?);
        }
        let mut command = Command::new("curl");
        command.args(CURL).args(options).stdin(Stdio::piped()).stdout(out);
        let shown = !options.contains(&"--silent");
        command.stderr(if shown { Stdio::inherit() } else { Stdio::piped() });
        let failed =
            |e: std::io::Error| format!("the program curl cannot be run ({e}): install it, or download the folder");
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            // If curl ends before it reads the settings, its exit status is reported below.
            let _ = input.write_all(settings.as_bytes());
        }
        let ended = child.wait_with_output().map_err(failed)?;
        match ended.status.success() {
            true => Ok(ended.stdout),
            false => {
                let text = String::from_utf8_lossy(&ended.stderr);
                let text = text.trim().strip_prefix("curl: ").unwrap_or(text.trim());
                Err(if text.is_empty() {
                    format!("the program curl failed without a message ({})", ended.status)
                } else {
                    text.to_owned()
                })
            }
        }
    }
}

/// The path of the null device, to which `curl` writes unneeded content.
const NOWHERE: &str = if cfg!(windows) { "NUL" } else { "/dev/null" };

/// Quotes a value for a settings file of `curl`. Returns an error if the value contains a control character.
fn quoted(text: &str) -> Result<String> {
    match text.chars().any(char::is_control) {
        true => Err("the hub address or the access token contains a control character".to_owned()),
        false => Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_cannot_be_broken_out_of() {
        assert_eq!(quoted("a\"b\\c").as_deref(), Ok("\"a\\\"b\\\\c\""));
        assert!(quoted("a\nurl = \"file:///etc/passwd\"").is_err());
    }
}
