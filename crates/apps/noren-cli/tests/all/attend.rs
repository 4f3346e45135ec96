//! `noren attend` from file to file: conformance cases, hostile input, memory, and outputs written completely or not at
//! all.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of one test, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes tensors of 32-bit floats.
    fn tensors(&self, name: &str, tensors: &[(&str, &[usize])]) -> PathBuf {
        let data: Vec<(&str, &[usize], Vec<u8>)> = (tensors.iter().enumerate())
            .map(|(i, (name, shape))| (*name, *shape, noise(i as u32 + 1, shape.iter().product())))
            .collect();
        let views = data.iter().map(|(name, shape, bytes)| {
            (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("bytes as the shape asks for"))
        });
        let path = self.file(name);
        safetensors::serialize_to_file(views, None, &path).expect("a file for the test");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns `n` floats between -1 and 1 as bytes, from a linear congruential generator.
fn noise(seed: u32, n: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).flat_map(|_| next().to_le_bytes()).collect()
}

fn noren(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_noren")).args(args).env_remove("NOREN_ISA").output().expect("the command starts")
}

fn attend(input: &Path, args: &[&str]) -> Output {
    noren(&[&["attend", input.to_str().expect("a path of this test")], args].concat())
}

#[track_caller]
fn refused(output: &Output, expected: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("error: ") && error.contains(expected), "{error} should contain {expected}");
    assert!(output.stdout.is_empty() && !error.contains("panicked"), "{error}");
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn conformance_cases_from_file_to_file() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/attention");
    let cases = std::fs::read_to_string(corpus.join("cases.json")).expect("testdata/conformance/attention/cases.json");
    let cases: Vec<serde_json::Value> = serde_json::from_str(&cases).expect("cases.json is a list");
    assert!(cases.len() >= 57);
    let folder = Folder::new("conformance");
    for case in &cases {
        let name = case["name"].as_str().expect("a case has a name");
        let (facts, out) = (folder.file("facts.json"), folder.file("out.safetensors"));
        std::fs::write(&facts, case["facts"].to_string()).expect("a facts file");
        let (facts, out_name) = (facts.to_str().expect("a path"), out.to_str().expect("a path"));
        let (offset, scale) = (case["query_offset"].to_string(), case["scale"].to_string());
        let mut args = vec!["--mask", case["mask"].as_str().expect("a mask"), "--facts", facts, "-o", out_name];
        args.extend(["--query-offset", &offset, "--verify"]);
        if !case["scale"].is_null() {
            args.extend(["--scale", &scale]);
        }
        let done = attend(&corpus.join(format!("{name}.safetensors")), &args);
        assert!(done.status.success(), "{name}: {}{}", text(&done.stdout), text(&done.stderr));

        let (given, stored) = (std::fs::read(&out), std::fs::read(corpus.join(format!("{name}.safetensors"))));
        let (given, stored) = (given.expect("an output"), stored.expect("a case"));
        let given = SafeTensors::deserialize(&given).expect("a safetensors file");
        let stored = SafeTensors::deserialize(&stored).expect("a safetensors file");
        for tensor in ["out", "lse"] {
            let (a, b) = (given.tensor(tensor).expect("written"), stored.tensor(tensor).expect("stored"));
            assert_eq!(a.shape(), b.shape(), "{name} {tensor}");
            let (a, b) = (floats(a.data()), floats(b.data()));
            let most = b.iter().filter(|x| x.is_finite()).fold(0.0f32, |m, x| m.max(x.abs()));
            // Scores of some hundreds have rounding errors of about 1e-5, which enter the exponent.
            let limit = if name == "large_scores" { 2e-4 } else { 1e-5 } * most;
            for (i, (a, b)) in a.iter().zip(&b).enumerate() {
                assert!(a == b || (a - b).abs() <= limit, "{name} {tensor}[{i}]: {a} but {b}, limit {limit}");
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn shapes_that_do_not_fit_are_refused_by_name() {
    let folder = Folder::new("shapes");
    let q: &[usize] = &[1, 4, 6, 8];
    for (k, v, expected) in [
        (&[1usize, 4, 6][..], &[1usize, 4, 6, 8][..], "tensor \"k\" has shape [1, 4, 6], 3 dimensions"),
        (&[1, 3, 6, 8], &[1, 3, 6, 8], "`q` has 4 heads and `k` has 3 heads"),
        (&[2, 4, 6, 8], &[2, 4, 6, 8], "tensor \"k\" has shape [2, 4, 6, 8]"),
        (&[1, 4, 6, 7], &[1, 4, 6, 8], "tensor \"k\" has shape [1, 4, 6, 7]"),
        (&[1, 4, 6, 8], &[1, 4, 5, 8], "tensor \"v\" has shape [1, 4, 5, 8]"),
        (&[1, 4, 6, 8], &[1, 2, 6, 8], "tensor \"v\" has shape [1, 2, 6, 8]"),
        (&[1, 4, 0, 8], &[1, 4, 0, 8], "dimension 2 of [batch, kv_heads, kv_len, head_dim] is 0"),
        (&[1, 4, 9, 8], &[1, 4, 9, 8], "6 queries over 9 keys"),
    ] {
        let input = folder.tensors("x.safetensors", &[("q", q), ("k", k), ("v", v)]);
        refused(&attend(&input, &["--mask", "causal"]), expected);
    }
}

#[test]
fn tables_that_do_not_fit_are_refused_by_name() {
    let folder = Folder::new("tables");
    let qkv: &[usize] = &[1, 4, 6, 8];
    for (score, table, expected) in [
        ("bias", &[1usize, 4, 6, 7][..], "tensor \"t\" has shape [1, 4, 6, 7]"),
        ("soft", &[1, 1, 4, 6, 6], "tensor \"t\" has shape [1, 1, 4, 6, 6]"),
        ("sinks", &[3], "the score `sinks` needs one value for each query head, so shape [4]"),
        ("relative", &[4, 6], "must be odd"),
    ] {
        let input = folder.tensors("x.safetensors", &[("q", qkv), ("k", qkv), ("v", qkv), ("t", table)]);
        refused(&attend(&input, &["--mask", &format!("causal + {score}(t)")]), expected);
    }
    let input = folder.tensors("y.safetensors", &[("q", qkv), ("k", qkv), ("v", qkv), ("x", &[6, 6])]);
    refused(&attend(&input, &["--mask", "causal + bias"]), "there is no tensor \"bias\": the file has");
    assert!(attend(&input, &["--mask", "causal + bias(x) + alibi", "--verify"]).status.success());
    refused(&attend(&input, &["--mask", "causal + soft(x)"]), "soft weights must be from 0 to 1");
    refused(&attend(&input, &["--mask", "causal + alibi(slopes=[0.5])"]), "there are 4 query heads");
}

#[test]
fn hostile_files_are_refused() {
    let folder = Folder::new("hostile");
    let qkv: &[usize] = &[1, 1, 2, 2];
    let good =
        std::fs::read(folder.tensors("good.safetensors", &[("q", qkv), ("k", qkv), ("v", qkv)])).expect("a file");
    let with_header = |header: &str, data: usize| {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
    };
    let tensor = |from: u64, to: u64| format!(r#"{{"dtype":"F32","shape":[1,1,2,2],"data_offsets":[{from},{to}]}}"#);
    let three = |k: String, v: String| format!(r#"{{"q":{},"k":{k},"v":{v}}}"#, tensor(0, 16));
    let f64s = with_header(&three(tensor(16, 32), tensor(32, 64).replace("F32", "F64")), 64);
    let path = folder.file("x.safetensors");
    for (bytes, expected) in [
        (Vec::new(), "not a safetensors file: 0 bytes"),
        (b"PK\x03\x04".to_vec(), "not a safetensors file: 4 bytes"),
        (good[..good.len() - 1].to_vec(), "truncated: the tensors take 48 bytes but only 47 follow"),
        (good[..40].to_vec(), "truncated: the header has"),
        ([&good[..], b"x"].concat(), "the last bytes belong to no tensor"),
        ([&u64::MAX.to_le_bytes()[..], b"{}"].concat(), "announce a header of 18446744073709551615 bytes"),
        (
            [&99_000_000u64.to_le_bytes()[..], b"{}"].concat(),
            "truncated: the header has 99000000 bytes but only 2 follow",
        ),
        (with_header(&three(tensor(8, 24), tensor(24, 40)), 40), "invalid offset for tensor"),
        (with_header(&three(tensor(16, 32), tensor(64, 80)), 80), "invalid offset for tensor"),
        (with_header(&three(tensor(16, 32), tensor(32, 1 << 60)), 64), "invalid shape, data type, or offset"),
        (with_header(&tensor(0, 16), 16), "wrong safetensors header"),
        (with_header("{}", 0), "there is no tensor \"q\": the file has no tensor"),
        (with_header("\0\0\0\0", 0), "wrong safetensors header"),
        (
            with_header(&three(tensor(16, 32), tensor(32, 48)).replace("\"v\"", "\"k\""), 48),
            "x.safetensors: wrong safetensors header: the name \"k\" appears twice",
        ),
        (f64s, "tensor \"v\" is F64, but F32 is needed"),
    ] {
        std::fs::write(&path, bytes).expect("a file");
        refused(&attend(&path, &[]), expected);
    }
}

#[test]
fn an_output_is_whole_or_not_there() {
    let folder = Folder::new("whole");
    let qkv: &[usize] = &[1, 2, 5, 4];
    let input = folder.tensors("x.safetensors", &[("q", qkv), ("k", qkv), ("v", qkv)]);
    let out = folder.file("out.safetensors");
    std::fs::write(&out, "what was there").expect("a file");
    let name = out.to_str().expect("a path");
    refused(&attend(&input, &["--mask", "padding", "--lengths", "9", "-o", name]), "batch row 0 has 9 tokens");
    assert_eq!(std::fs::read(&out).expect("it stays"), b"what was there");
    assert!(attend(&input, &["--mask", "causal", "-o", name]).status.success());
    let bytes = std::fs::read(&out).expect("an output");
    let tensors = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    assert_eq!(tensors.tensor("out").expect("written").shape(), [1, 2, 5, 4]);
    assert_eq!(tensors.tensor("lse").expect("written").shape(), [1, 2, 5]);
    let mut names: Vec<_> =
        std::fs::read_dir(&folder.0).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["out.safetensors", "x.safetensors"], "no part of an output is left");
    let nowhere = folder.file("none/out.safetensors");
    refused(&attend(&input, &["-o", nowhere.to_str().expect("a path")]), "cannot be written");
}

#[test]
fn outputs_that_cannot_be_written_are_refused_before_the_work() {
    let folder = Folder::new("refused");
    let name = |path: &Path| path.to_str().expect("a path").to_string();
    // The input is also missing: if it were read first, that would be the error.
    let input = folder.file("missing.safetensors");
    let file = folder.file("a.txt");
    std::fs::write(&file, "a").expect("a file");
    for (output, expected) in [
        (folder.file("none/out.txt"), "the file cannot be written, because there is no folder"),
        (folder.file("a.txt/out.txt"), "cannot be written"),
        (folder.file("out.txt/"), "the path does not end with a file name"),
    ] {
        refused(&attend(&input, &["-o", &name(&output)]), expected);
        refused(&noren(&["attend", "-o", &name(&output)]), expected);
    }
    refused(&attend(&input, &["-o", &name(&folder.0)]), "this path is a folder, but a file is needed");
    let pictures = folder.file("pictures.svg");
    std::fs::create_dir(&pictures).expect("a folder");
    // This mask is too large to bind, but the output is checked first.
    refused(
        &noren(&["show", "causal", "--len", "9999999999", "-o", &name(&pictures)]),
        "this path is a folder, but a file is needed",
    );
    let mut read_only = std::fs::metadata(&file).expect("a file").permissions();
    read_only.set_readonly(true);
    std::fs::set_permissions(&file, read_only).expect("a file that may be changed");
    refused(&noren(&["show", "causal", "-o", &name(&file)]), "the file is read-only");
    assert_eq!(std::fs::read(&file).expect("it stays"), b"a");
}

#[test]
#[cfg(unix)]
fn links_lead_to_what_is_written_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new("links");
    let show = |path: &Path| {
        let done = noren(&["show", "causal", "-o", path.to_str().expect("a path")]);
        assert!(done.status.success(), "{}", text(&done.stderr));
    };
    let is_link = |path: &Path| std::fs::symlink_metadata(path).expect("a link").is_symlink();
    let (file, link, dangling) = (folder.file("file.txt"), folder.file("link.txt"), folder.file("dangling.txt"));
    std::fs::write(&file, "a").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("permissions");
    symlink("file.txt", &link).expect("a link");
    symlink("new.txt", &dangling).expect("a link");
    show(&link);
    show(&dangling);
    assert!(is_link(&link) && is_link(&dangling));
    assert!(std::fs::read(&file).expect("a picture").starts_with(b"causal"));
    assert!(std::fs::read(folder.file("new.txt")).expect("a picture").starts_with(b"causal"));
    assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o640);
    let (one, other) = (folder.file("one.txt"), folder.file("other.txt"));
    symlink(&one, &other).expect("a link");
    symlink(&other, &one).expect("a link");
    refused(
        &noren(&["show", "causal", "-o", one.to_str().expect("a path")]),
        "the symbolic links of the path form a cycle",
    );
    // A name of maximum length cannot be extended by the ending of a temporary file.
    show(&folder.file(&format!("{}.txt", "n".repeat(251))));
}

#[test]
fn memory_stays_below_three_times_the_inputs() {
    let folder = Folder::new("memory");
    // Long padding keeps the test short: hidden keys cost no time.
    let qkv: &[usize] = &[1, 16, 16384, 16];
    let input = folder.tensors("x.safetensors", &[("q", qkv), ("k", qkv), ("v", qkv)]);
    let out = folder.file("out.safetensors");
    let args = ["--mask", "causal & padding", "--lengths", "1500", "--json", "-o", out.to_str().expect("a path")];
    let done = attend(&input, &args);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("a report");
    let bytes = |name: &str| report[name].as_u64();
    let inputs = bytes("input_bytes").expect("a number");
    assert_eq!(inputs, 3 * 4 * 16 * 16384 * 16);
    if let Some(peak) = bytes("peak_bytes") {
        assert!(peak < 3 * inputs, "{peak} bytes for {inputs} bytes of input");
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let folder = Folder::new("threads");
    let qkv: &[usize] = &[2, 4, 200, 16];
    let input = folder.tensors("x.safetensors", &[("q", qkv), ("k", qkv), ("v", qkv)]);
    let outputs = ["1", "2", "5"].map(|threads| {
        let out = folder.file(threads);
        let args = ["--mask", "causal & padding", "--lengths", "200,61", "--threads", threads, "-o"];
        let done = attend(&input, &[&args[..], &[out.to_str().expect("a path")]].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        std::fs::read(out).expect("an output")
    });
    assert!(outputs[0] == outputs[1] && outputs[1] == outputs[2]);
    refused(&attend(&input, &["--threads", "0"]), "--threads is 0");
    refused(&attend(&input, &["--threads", "257"]), "--threads is 257: give 1 to 256, or leave --threads out");
}

#[test]
fn pictures_are_written_as_their_names_say() {
    let folder = Folder::new("pictures");
    for (name, beginning) in [("m.svg", &b"<svg"[..]), ("m.PNG", b"\x89PNG"), ("m.txt", b"causal\n16 queries")] {
        let path = folder.file(name);
        let done = noren(&["show", "causal + softcap(5)", "--color", "always", "-o", path.to_str().expect("a path")]);
        assert!(done.status.success() && done.stdout.is_empty(), "{}", text(&done.stderr));
        let bytes = std::fs::read(path).expect("a picture");
        assert!(bytes.starts_with(beginning), "{name}");
        assert!(!name.ends_with("txt") || bytes.ends_with(b"scores + softcap(5)\n"));
    }
}

/// Runs a command whose reader closes the pipe after a few bytes, and returns the exit code.
#[cfg(unix)]
fn with_a_reader_that_goes_away(args: &[&str]) -> Option<i32> {
    use std::io::Read;
    use std::process::Stdio;
    let mut child = Command::new(env!("CARGO_BIN_EXE_noren"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut first = [0; 10];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("some output");
    let done = child.wait_with_output().expect("the command ends");
    assert!(done.stderr.is_empty(), "{}", text(&done.stderr));
    done.status.code()
}

#[test]
#[cfg(unix)]
fn a_reader_that_goes_away_changes_no_verdict() {
    let diff = |second| ["diff", "causal", second, "--len", "400", "--cells", "80000"];
    assert_eq!(with_a_reader_that_goes_away(&diff("full")), Some(1));
    assert_eq!(with_a_reader_that_goes_away(&diff("full - !causal")), Some(0));
    assert_eq!(with_a_reader_that_goes_away(&["completions", "bash"]), Some(0));
}

#[test]
#[cfg(target_os = "linux")]
fn help_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let done =
        std::process::Command::new(env!("CARGO_BIN_EXE_noren")).arg("--help").stdout(full).output().expect("it starts");
    assert_eq!(done.status.code(), Some(2));
    assert!(
        text(&done.stderr).contains("the output cannot be written: No space left on device"),
        "{}",
        text(&done.stderr)
    );
}
