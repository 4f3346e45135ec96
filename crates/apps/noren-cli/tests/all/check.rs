//! `noren check`, `noren flow` and `noren verify` on files: output, exit codes, and errors for hostile files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Creates an empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

fn noren(folder: &Path, args: &[&str]) -> (i32, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_noren")).args(args).current_dir(folder).env("NO_COLOR", "1").output();
    let Output { status, stdout, stderr } = run.expect("the command runs");
    (status.code().expect("an exit code"), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

fn square(n: usize, cell: impl Fn(usize, usize) -> bool) -> Vec<u8> {
    let cells: Vec<u8> = (0..n * n).map(|at| u8::from(cell(at / n, at % n))).collect();
    npy("|b1", &format!("({n}, {n})"), &cells)
}

#[test]
fn a_faulty_mask_is_named_drawn_and_repaired() {
    let folder = folder("faulty");
    std::fs::write(folder.join("mask.npy"), square(6, |i, j| j <= i + 1)).expect("written");
    let (code, said) =
        noren(&folder, &["check", "mask.npy", "-d", "kind=causal", "--fix", "fixed.npy", "-o", "wrong.svg"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("causal_leak") && said.contains("repair: causal") && said.contains("0   ■ + ·"), "{said}");
    assert!(std::fs::read_to_string(folder.join("wrong.svg")).expect("a picture").starts_with("<svg"));
    let (code, said) = noren(&folder, &["check", "fixed.npy", "-d", "kind=causal"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = noren(&folder, &["check", "mask.npy", "-d", "kind=causal", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, json["classes"][0].as_str()), (1, Some("causal_leak")));
}

#[test]
fn without_a_declared_kind_there_is_no_verdict() {
    let folder = folder("unsaid");
    std::fs::write(folder.join("mask.npy"), square(6, |i, j| j <= i && j >= 2 || i == j)).expect("written");
    let (code, said) = noren(&folder, &["check", "mask.npy"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.starts_with("looks like: causal, padding hidden (0 of 24 cells differ from this mask)"), "{said}");
    std::fs::write(folder.join("wide.npy"), square(6, |i, j| j <= i + 1)).expect("written");
    let (_, said) = noren(&folder, &["check", "wide.npy"]);
    assert!(said.contains("causal_leak"), "{said}");
}

#[test]
fn verdicts_and_their_exit_codes() {
    let folder = folder("verdicts");
    let check = |args: &[&str]| noren(&folder, &[&["check", "mask.npy"][..], args].concat());
    std::fs::write(folder.join("mask.npy"), square(6, |i, j| j <= i)).expect("written");
    let (code, said) = check(&["-d", "kind=causal"]);
    assert!(code == 0 && said.starts_with("correct: all 36 compared cells are equal"), "{said}");
    let (code, said) = check(&["--meant", "causal", "--len", "6"]);
    assert!(code == 0 && said.starts_with("correct: all 36 compared cells are equal"), "{said}");
    for (declared, word) in [
        ("kind=caussal", "did you mean `causal`?"),
        ("convention=keep_boll", "did you mean `keep_bool`?"),
        ("past_len=1000000000000", "expected a whole number"),
        ("batch=2000000000", "declared sizes"),
        ("widnow=3", "did you mean `window`?"),
    ] {
        let (code, said) = check(&["-d", "q_len=6", "-d", declared]);
        assert!(code == 2 && said.contains(word), "{declared}: {code} {said}");
    }
    let ints: Vec<u8> = (0..256u64).flat_map(|at| u64::from(at % 64 < 60).to_le_bytes()).collect();
    std::fs::write(folder.join("mask.npy"), npy("<i8", "(4, 64)", &ints)).expect("written");
    let (code, said) = check(&[]);
    assert!(code == 3 && said.contains("question:") && said.contains("4 batch rows of 64 keys"), "{said}");
    // Without a verdict, no repaired mask is written.
    let (code, said) = check(&["--fix", "fixed.npy"]);
    assert!(code == 3 && said.contains("fixed.npy: not written") && !folder.join("fixed.npy").exists(), "{said}");
    // No known mistake explains these wrong cells, so no repaired mask is written.
    let holes = square(12, |i, j| (j <= i) != [(7, 2), (3, 9), (11, 5), (0, 4)].contains(&(i, j)));
    std::fs::write(folder.join("mask.npy"), holes).expect("written");
    let (code, said) = check(&["-d", "kind=causal", "--fix", "fixed.npy"]);
    assert!(code == 1 && said.contains("fixed.npy: not written") && !said.contains("repair: "), "{said}");
    assert!(!folder.join("fixed.npy").exists());
}

/// Returns the bytes of a zip archive with one stored entry, whose header claims `size` bytes.
fn npz(name: &str, data: &[u8], size: u32) -> Vec<u8> {
    let (len, name_len) = (data.len() as u32, name.len() as u16);
    let common = |out: &mut Vec<u8>| {
        out.extend([20, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend(0u32.to_le_bytes());
        out.extend(len.to_le_bytes());
        out.extend(size.to_le_bytes());
        out.extend(name_len.to_le_bytes());
        out.extend([0, 0]);
    };
    let mut out = b"PK\x03\x04".to_vec();
    common(&mut out);
    out.extend(name.as_bytes());
    out.extend(data);
    let directory = out.len() as u32;
    out.extend(b"PK\x01\x02\x14\x00");
    common(&mut out);
    out.extend([0; 10]);
    out.extend(0u32.to_le_bytes());
    out.extend(name.as_bytes());
    let size = out.len() as u32 - directory;
    out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    out.extend(size.to_le_bytes());
    out.extend(directory.to_le_bytes());
    out.extend([0, 0]);
    out
}

#[test]
fn hostile_files_are_refused() {
    let folder = folder("hostile");
    let good = square(4, |i, j| j <= i);
    let mut huge_header = 100_000_000_000u64.to_le_bytes().to_vec();
    huge_header.extend(b"{}");
    let claims = br#"{"mask":{"dtype":"F32","shape":[200000,200000],"data_offsets":[0,160000000000]}}"#;
    let mut claimed = (claims.len() as u64).to_le_bytes().to_vec();
    claimed.extend(claims);
    let files: Vec<(&str, Vec<u8>, &str)> = vec![
        ("truncated.npy", good[..good.len() - 3].to_vec(), "follow the header"),
        ("cut-header.npy", good[..12].to_vec(), "truncated"),
        ("objects.npy", npy("|O", "(2, 2)", &[0x80, 4, 0x95, 0, 0, 0]), "run code"),
        ("fields.npy", npy("", "(2,)", &[0; 8]).to_vec(), ""),
        ("huge.npy", npy("<f4", "(200000, 200000)", &[0; 16]), "16 follow"),
        ("endless.npy", npy("<f4", "(99999999999, 99999999999)", &[0; 16]), "too many"),
        ("pickle.npy", vec![0x80, 4, b'c', b'o', b's'], "pickle"),
        ("pickle.pt", vec![0x80, 2, b'c', b'o', b's'], "pickle"),
        ("huge.safetensors", huge_header, ""),
        ("claims.safetensors", claimed, ""),
        ("objects.npz", npz("mask.npy", &npy("|O", "(1,)", &[0x80, 4]), 70), ""),
        ("bytes.npy", npy("é", "(2, 2)", &[0; 4]), "are not supported"),
        ("one-size.npy", npy("|b1", "(4)", &[0; 4]), "not a Python tuple"),
        ("bomb.npz", npz("mask.npy", &npy("|u1", "(60000, 60000)", &[0; 16]), 3_600_000_080), "the maximum of"),
        ("lies.npz", npz("mask.npy", &npy("|u1", "(60000, 60000)", &[0; 16]), 200), ""),
        ("cut.npz", npz("mask.npy", &good, good.len() as u32)[..40].to_vec(), "npz"),
        ("model.pt", npz("archive/data.pkl", &[0x80, 2], 2), ""),
        ("empty.npy", Vec::new(), ""),
    ];
    for (name, bytes, word) in files {
        std::fs::write(folder.join(name), bytes).expect("written");
        let (code, said) = noren(&folder, &["check", name]);
        assert_eq!(code, 2, "{name}: {said}");
        assert!(said.contains(word) && said.contains("error:"), "{name}: {said}");
    }
}

#[test]
fn a_policy_is_certified_and_verified() {
    let folder = folder("flow");
    std::fs::write(folder.join("facts.json"), r#"{"documents": [[5, 3]], "labels": {"pii": [2]}}"#).expect("written");
    std::fs::write(folder.join("policy.txt"), "deny: document(i) -> document(j)\nallow: label(pii) -> document(0)\n")
        .expect("written");
    let stack = ["causal & documents", "--layers", "4", "--facts", "facts.json"];
    let (code, said) =
        noren(&folder, &[&["flow"][..], &stack, &["--policy", "policy.txt", "-o", "certificate.json"]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("holds") && said.contains("not covered"), "{said}");
    let (code, said) = noren(&folder, &[&["verify", "certificate.json"][..], &stack].concat());
    assert_eq!(code, 0, "{said}");
    let other = ["causal", "--layers", "4", "--facts", "facts.json"];
    let (code, said) = noren(&folder, &[&["verify", "certificate.json"][..], &other].concat());
    assert_eq!(code, 2, "{said}");
    let text = std::fs::read_to_string(folder.join("certificate.json")).expect("a certificate");
    for (from, to) in [
        ("causal & documents", "causal"),
        ("\"holds\": true", "\"holds\":  true"),
        ("deny: document", "allow: document"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        std::fs::write(folder.join("changed.json"), &changed).expect("written");
        let (code, said) = noren(&folder, &["verify", "changed.json"]);
        // White space in the certificate has no meaning.
        assert_eq!(code, if to.contains(":  true") { 0 } else { 2 }, "{from}: {said}");
    }
    let (code, said) =
        noren(&folder, &["flow", "causal", "--layers", "2", "--len", "8", "--deny", "token(2) -> token(7)"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("token 2 -> token 7 in layer 0"), "{said}");
}

#[test]
fn layers_may_be_files() {
    let folder = folder("layers");
    std::fs::write(folder.join("a.npy"), square(8, |i, j| j <= i && i - j < 2)).expect("written");
    let (code, said) = noren(&folder, &["flow", "a.npy", "--layers", "3", "--token", "7"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("4 tokens: 4..8"), "{said}");
}

#[test]
fn a_mask_is_read_from_standard_input() {
    use std::io::Write;
    let mut command = Command::new(env!("CARGO_BIN_EXE_noren"));
    command.args(["check", "-", "-d", "kind=causal"]).env("NO_COLOR", "1");
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().expect("runs");
    child.stdin.take().expect("a pipe").write_all(&square(6, |i, j| j <= i)).expect("written");
    let output = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.starts_with("correct"), "{said}");
}

/// Files that are no arrays are named as what they are.
#[test]
fn other_files_are_named() {
    let folder = folder("others");
    for (file, bytes, expected) in [
        ("mask.py", &b"import numpy"[..], "mask.py: the file is Python code, not an array"),
        ("mask.csv", b"1,0\n1,1\n", "mask.csv: the file is text, not an array"),
        ("mask.png", b"\x89PNG\r\n\x1a\n", "mask.png: the file is a PNG picture, not an array"),
        ("mask", b"", "mask: the file is empty, not an array"),
        (
            "mask.npz.gz",
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
            "mask.npz.gz: the file is compressed with gzip, not an array",
        ),
    ] {
        std::fs::write(folder.join(file), bytes).expect("written");
        let (code, said) = noren(&folder, &["check", file]);
        assert!(code == 2 && said.contains(expected) && said.contains("numpy.save"), "{said}");
    }
}
