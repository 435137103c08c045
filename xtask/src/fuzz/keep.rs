//! The inputs that the repository keeps: few and small, which reach together what all known ones reach.

use super::runner::{Place, files, shown};
use super::targets::Target;
use anyhow::{Result, bail};
use std::fs;
use std::process::Stdio;

/// Most inputs that are kept of a target.
const MOST: usize = 48;
/// Longest input that is kept, bytes.
const LONGEST: u64 = 4096;

/// Puts the best known inputs of `target` into the repository; how many.
pub(crate) fn keep(place: &Place<'_>, target: &Target) -> Result<usize> {
    let kept = place.root.join(target.folder()).join("corpus");
    let fresh = place.folder.join("kept").join(target.name);
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh)?;
    let mut arguments = vec!["-set_cover_merge=1".to_owned(), shown(place.root, &fresh)];
    let known = [place.grown(target), kept.clone()];
    arguments.extend(known.iter().filter(|folder| folder.is_dir()).map(|folder| shown(place.root, folder)));
    arguments.push(format!("-max_len={LONGEST}"));
    let output = place.command(target, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    let mut best: Vec<_> = files(&fresh).into_iter().collect();
    if !output.status.success() || best.is_empty() {
        bail!("{}: {}", target.name, String::from_utf8_lossy(&output.stderr));
    }
    best.sort_by_key(|file| std::cmp::Reverse(fs::metadata(file).map_or(0, |meta| meta.len())));
    best.truncate(MOST);
    let _ = fs::remove_dir_all(&kept);
    fs::create_dir_all(&kept)?;
    for file in &best {
        fs::copy(file, kept.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(best.len())
}
