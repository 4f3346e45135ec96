//! `noren embed`: order, file formats, bad lines, interrupted runs, full disks.

#![cfg(feature = "models")]

use crate::common::{Folder, noren, refused};
use crate::words;
use noren_models::candle_core::{Device, safetensors as files};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const WIDTH: usize = 64;

/// Returns lines of 1 to 40 words, all different.
fn lines(count: usize) -> Vec<String> {
    let word = |line: usize, i: usize| format!("w{}", 5 + (line * 31 + i * i * 7 + line / 126 * (i + 1)) % 126);
    (0..count).map(|line| (0..1 + line * 17 % 40).map(|i| word(line, i)).collect::<Vec<_>>().join(" ")).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn embed(model: &Path, input: &Path, out: &Path, more: &[&str]) -> Output {
    noren(&[&["embed", "--model", text(model), text(input), "-o", text(out)], more].concat())
}

/// Reads the vectors of a NumPy file.
fn npy(path: &Path) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let head = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    assert!((10 + head).is_multiple_of(64));
    let values: Vec<f32> = bytes[10 + head..].as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    values.chunks_exact(WIDTH).map(<[f32]>::to_vec).collect()
}

fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|vector| vector.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn order_is_kept_and_no_bit_depends_on_the_packing_or_the_form() {
    let folder = Folder::new("embed-order");
    let (model, lines) = (words::model(&folder, "bert"), lines(700));
    let input = folder.file("lines.txt");
    // Lines may end with \r\n, and the last line may lack a line break.
    std::fs::write(&input, lines.join("\r\n")).unwrap();
    let [a, b, c, d] = ["a.npy", "b.npy", "c.safetensors", "d.jsonl"].map(|name| folder.file(name));
    for (out, more) in [(&a, &[][..]), (&b, &["--budget", "50"]), (&c, &[]), (&d, &[])] {
        let output = embed(&model, &input, out, more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "700 vectors of 64 numbers\n");
    }
    let vectors = npy(&a);
    assert_eq!(vectors.len(), 700);
    assert_eq!(bits(&npy(&b)), bits(&vectors));
    assert_eq!(bits(&files::load(&c, &Device::Cpu).unwrap()["embeddings"].to_vec2().unwrap()), bits(&vectors));
    let written = std::fs::read_to_string(&d).unwrap();
    let rows: Vec<Vec<f32>> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(bits(&rows), bits(&vectors));
    for i in [0, 399, 511, 512, 699] {
        std::fs::write(&input, &lines[i]).unwrap();
        assert!(embed(&model, &input, &a, &[]).status.success());
        assert_eq!(bits(&npy(&a))[0], bits(&vectors)[i], "line {i} alone");
    }
    assert!(!folder.file("a.npy.part").exists());
}

#[test]
fn bad_lines_are_reported_and_nothing_else_is_lost() {
    let folder = Folder::new("embed-bad");
    let model = words::model(&folder, "bert");
    let (input, out) = (folder.file("lines.txt"), folder.file("out.npy"));
    let long = vec!["w9"; 500].join(" ");
    std::fs::write(&input, [b"w7 w8\n\n  \t\nw7 \xff\xfe\n", long.as_bytes(), b"\nw7 w8\n"].concat()).unwrap();
    let output = embed(&model, &input, &out, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for expected in [
        "lines.txt, line 2: the line is empty",
        "line 3: the line is empty",
        "line 4: the line is not UTF-8 from byte 3 on",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    assert!(said.contains("1 lines have more tokens than the model accepts, and were cut off"), "{said}");
    let vectors = npy(&out);
    assert_eq!(vectors.len(), 6);
    assert!(vectors[1..4].iter().flatten().all(|x| x.is_nan()));
    assert!(vectors[4].iter().all(|x| x.is_finite()));
    assert_eq!(bits(&vectors)[0], bits(&vectors)[5]);

    let piped = Command::new(env!("CARGO_BIN_EXE_noren"))
        .args(["embed", "--model", text(&model)])
        .stdin(std::fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert_eq!(piped.status.code(), Some(1));
    let rows = String::from_utf8(piped.stdout).unwrap();
    assert_eq!(rows.lines().map(|row| row == "null").collect::<Vec<_>>(), [false, true, true, true, false, false]);
}

/// A named pipe can be read only once.
#[cfg(unix)]
#[test]
fn a_pipe_is_read_as_a_file_is() {
    let folder = Folder::new("embed-pipe");
    let model = words::model(&folder, "bert");
    let (input, out) = (folder.file("lines.txt"), folder.file("out.npy"));
    std::fs::write(&input, lines(20).join("\n")).unwrap();
    assert!(embed(&model, &input, &out, &[]).status.success());
    let piped = Command::new("sh")
        .args(["-c", "cat \"$1\" | \"$2\" embed --model \"$3\" /dev/stdin", "sh", text(&input)])
        .args([env!("CARGO_BIN_EXE_noren"), text(&model)])
        .output()
        .unwrap();
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    let rows = String::from_utf8(piped.stdout).unwrap();
    let rows: Vec<Vec<f32>> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(bits(&rows), bits(&npy(&out)));
}

#[test]
fn a_run_that_was_ended_goes_on_with_the_same_bits() {
    let folder = Folder::new("embed-resume");
    let (model, lines) = (words::model(&folder, "bert"), lines(1300));
    std::fs::create_dir(model.join("1_Pooling")).unwrap();
    std::fs::write(
        model.join("modules.json"),
        r#"[{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"}]"#,
    )
    .unwrap();
    let pooled_by = |way: &str| {
        let key = format!("pooling_mode_{way}_{}", if way == "cls" { "token" } else { "tokens" });
        std::fs::write(model.join("1_Pooling/config.json"), format!("{{\"{key}\": true}}")).unwrap();
    };
    pooled_by("mean");
    let (input, whole, out, part) =
        (folder.file("lines.txt"), folder.file("whole.npy"), folder.file("out.npy"), folder.file("out.npy.part"));
    std::fs::write(&input, lines.join("\n")).unwrap();
    assert!(embed(&model, &input, &whole, &[]).status.success());

    // The lines arrive slowly, and the run is killed when some vectors are finished.
    let mut child = Command::new(env!("CARGO_BIN_EXE_noren"))
        .args(["embed", "--model", text(&model), "-o", text(&out)])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines[..1100].join("\n").as_bytes()).unwrap();
    let finished = || std::fs::metadata(&part).map_or(0, |about| about.len()) > 512 * 4 * WIDTH as u64;
    while !finished() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!out.exists() && part.exists());
    // The last vector was written incompletely.
    let len = std::fs::metadata(&part).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&part).unwrap().set_len(len - 5).unwrap();

    let other = folder.file("other.txt");
    std::fs::write(&other, format!("w77 w77\n{}", lines[1..].join("\n"))).unwrap();
    refused(&embed(&model, &other, &out, &[]), "out.npy.part belongs to another text");
    std::fs::write(&other, &lines[0]).unwrap();
    refused(&embed(&model, &other, &out, &[]), "out.npy.part belongs to another text: the .part file has");
    assert!(!out.exists() && part.exists());

    // Vectors of two models or poolings are not written to one file.
    pooled_by("cls");
    refused(&embed(&model, &input, &out, &[]), "out.npy.part contains vectors of another model");
    pooled_by("mean");
    refused(&embed(&model, &input, &out, &["--dtype", "bf16"]), "or with another pooling, --dtype");

    let output = embed(&model, &input, &out, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(bits(&npy(&out)), bits(&npy(&whole)));
    assert!(!part.exists());
}

#[test]
fn what_cannot_be_embedded_or_written_is_refused() {
    let folder = Folder::new("embed-refused");
    let model = words::model(&folder, "bert");
    let (input, out) = (folder.file("lines.txt"), folder.file("out.npy"));
    std::fs::write(&input, "w7\n").unwrap();
    refused(&embed(&model, &folder.file("none.txt"), &out, &[]), "none.txt: the file cannot be read");
    refused(&embed(&model, &input, &folder.file("out.bin"), &[]), "unknown file format");
    refused(&embed(&model, &input, &folder.file("no/out.npy"), &[]), "there is no folder");
    refused(&embed(&model, &input, &out, &["--budget", "0"]), "--budget is 0");
    refused(&embed(&model, &input, &out, &["--dtype", "f16"]), "[possible values: f32, bf16]");
    std::fs::write(folder.file("empty.txt"), "").unwrap();
    refused(&embed(&model, &folder.file("empty.txt"), &out, &[]), "the text has no lines");
    if cfg!(target_os = "linux") {
        let full = folder.file("full.npy");
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        refused(&embed(&model, &input, &full, &[]), "the file cannot be written: No space left on device");
        let stdout = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut piped = Command::new(env!("CARGO_BIN_EXE_noren"));
        let status = piped.args(["embed", "--model", text(&model), text(&input)]).stdout(stdout).status().unwrap();
        assert!(!status.success());
    }
    std::fs::write(model.join("modules.json"), r#"[{"type": "sentence_transformers.models.Dense", "path": ""}]"#)
        .unwrap();
    refused(&embed(&model, &input, &out, &[]), "the module \"Dense\" is not supported");
    std::fs::write(model.join("modules.json"), r#"[{"type": "x.Pooling", "path": "1_Pooling"}]"#).unwrap();
    refused(&embed(&model, &input, &out, &[]), "cannot be read");
    std::fs::remove_file(model.join("modules.json")).unwrap();
    std::fs::write(model.join("tokenizer.json"), "{}").unwrap();
    refused(&embed(&model, &input, &out, &[]), "the contents are not a tokenizer.json of Hugging Face");
    std::fs::remove_file(model.join("tokenizer.json")).unwrap();
    refused(&embed(&model, &input, &out, &[]), "put the tokenizer of the model into this folder");
    assert!(!out.exists());
}
