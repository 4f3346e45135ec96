//! [`Cache`]: the folder in which the tools of Hugging Face store their downloads.
//!
//! A model `owner/name` has the folder `models--owner--name`. The file `refs/main` contains the name of a commit. The
//! folder `snapshots/COMMIT` contains the files of the model, as links to `blobs/ETAG`.

use std::fs;
use std::io::Result;
use std::path::{Component, Path, PathBuf};

/// The cache folder, which contains one folder for each model.
pub(super) struct Cache(PathBuf);

impl Cache {
    /// Returns the cache that other tools also use: the folder `HF_HUB_CACHE`, or the folder `hub` in `HF_HOME`
    /// [default: `~/.cache/huggingface`]. Returns `None` if these variables are not set and there is no home folder.
    pub(super) fn find() -> Option<Cache> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = || set("HF_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache/huggingface")));
        set("HF_HUB_CACHE").or_else(|| Some(home()?.join("hub"))).map(Cache)
    }

    /// Returns the path of the cache folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the access token that the tools of Hugging Face stored; `None` if no token is stored.
    pub(super) fn token(&self) -> Option<String> {
        let text = fs::read_to_string(self.0.parent()?.join("token")).ok()?;
        Some(text.trim().to_owned()).filter(|token| !token.is_empty())
    }

    /// Returns the folder of a model in the cache; the folder may be missing.
    pub(super) fn model(&self, name: &str) -> Repo {
        Repo(self.0.join(format!("models--{}", name.replace('/', "--"))))
    }
}

/// The folder of a model in the cache.
pub(super) struct Repo(PathBuf);

impl Repo {
    /// Returns the path of a file in the commit that `refs/main` names; `None` if the cache does not contain the file.
    pub(super) fn get(&self, file: &str) -> Option<PathBuf> {
        let commit = fs::read_to_string(self.0.join("refs/main")).ok()?;
        let path = self.0.join("snapshots").join(commit.trim()).join(file);
        path.exists().then_some(path)
    }

    /// Creates the folder `blobs` and returns two paths in `blobs`: the file with the content of this ETag, and the
    /// file that holds the content while the download is unfinished.
    pub(super) fn blob(&self, etag: &str) -> Result<[PathBuf; 2]> {
        let folder = self.0.join("blobs");
        fs::create_dir_all(&folder)?;
        Ok([folder.join(etag), folder.join(format!("{etag}.part"))])
    }

    /// Creates the link `snapshots/COMMIT/FILE` to the file `blob` in the folder `blobs`, and writes the commit to
    /// `refs/main`. Returns the path of the link.
    pub(super) fn link(&self, commit: &str, file: &str, blob: &Path) -> Result<PathBuf> {
        let path = self.0.join("snapshots").join(commit).join(file);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // A link to a missing file is replaced.
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
