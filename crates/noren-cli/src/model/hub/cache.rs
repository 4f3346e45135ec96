//! [`Cache`]: the folder in which Hugging Face's tools keep what they downloaded.
//!
//! A model `owner/name` has the folder `models--owner--name`: `refs/main` holds a commit, `snapshots/COMMIT` the files by their names,
//! as links to `blobs/ETAG`.

use std::fs;
use std::io::Result;
use std::path::{Component, Path, PathBuf};

/// The cache folder.
pub(super) struct Cache(PathBuf);

impl Cache {
    /// The cache that other tools use too: `HF_HUB_CACHE`, or `hub` in `HF_HOME`; `None` without a home folder.
    pub(super) fn find() -> Option<Cache> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = || set("HF_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache/huggingface")));
        set("HF_HUB_CACHE").or_else(|| Some(home()?.join("hub"))).map(Cache)
    }

    /// Its folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The token that Hugging Face's tools have stored.
    pub(super) fn token(&self) -> Option<String> {
        let text = fs::read_to_string(self.0.parent()?.join("token")).ok()?;
        Some(text.trim().to_owned()).filter(|token| !token.is_empty())
    }

    /// The part of it that belongs to a model.
    pub(super) fn model(&self, name: &str) -> Repo {
        Repo(self.0.join(format!("models--{}", name.replace('/', "--"))))
    }
}

/// The part of the cache that belongs to a model.
pub(super) struct Repo(PathBuf);

impl Repo {
    /// A file of the commit that `main` was when it was downloaded.
    pub(super) fn get(&self, file: &str) -> Option<PathBuf> {
        let commit = fs::read_to_string(self.0.join("refs/main")).ok()?;
        let path = self.0.join("snapshots").join(commit.trim()).join(file);
        path.exists().then_some(path)
    }

    /// The file that holds the content of this tag, and the one that it is downloaded to.
    pub(super) fn blob(&self, etag: &str) -> Result<[PathBuf; 2]> {
        let folder = self.0.join("blobs");
        fs::create_dir_all(&folder)?;
        Ok([folder.join(etag), folder.join(format!("{etag}.part"))])
    }

    /// Gives a blob its name in a commit, which `main` is from now on.
    pub(super) fn link(&self, commit: &str, file: &str, blob: &Path) -> Result<PathBuf> {
        let path = self.0.join("snapshots").join(commit).join(file);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // One that leads nowhere is replaced.
        let _ = fs::remove_file(&path);
        let up = 2 + Path::new(file).components().filter(|part| matches!(part, Component::Normal(_))).count() - 1;
        let mut target: PathBuf = std::iter::repeat_n("..", up).collect();
        target.push("blobs");
        target.extend(blob.file_name());
        link(&target, &path).or_else(|_| fs::copy(blob, &path).map(drop))?;
        let refs = self.0.join("refs");
        fs::create_dir_all(&refs)?;
        fs::write(refs.join("main"), commit)?;
        Ok(path)
    }
}

#[cfg(unix)]
fn link(target: &Path, path: &Path) -> Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(windows)]
fn link(target: &Path, path: &Path) -> Result<()> {
    std::os::windows::fs::symlink_file(target, path)
}

#[cfg(not(any(unix, windows)))]
fn link(_: &Path, _: &Path) -> Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
