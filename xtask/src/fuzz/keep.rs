//! The inputs that the repository keeps: few and small, which reach together most of what all known ones reach.

use super::runner::{Place, files};
use super::targets::Target;
use crate::sources::shown;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

/// Most inputs that are kept of a target: `cargo test` tries them all, each time.
const INPUTS_MAX: usize = 32;
/// Most bytes of them.
const BYTES: u64 = 16 * 1024;
/// What an input costs beside its bytes.
const COST: u64 = 512;

/// The coverage of one input.
#[derive(Debug, PartialEq, Eq)]
struct Reached {
    file: PathBuf,
    /// Bytes.
    size: u64,
    /// Numbers of branches, with how often each was taken, roughly.
    features: Vec<u32>,
}

/// Puts the best known inputs of `target` into the repository; how many.
pub(crate) fn keep(place: &Place<'_>, target: &Target) -> Result<usize> {
    let kept = place.root.join(target.folder()).join("corpus");
    let fresh = place.folder.join("kept").join(target.name);
    let control = place.folder.join("kept").join(format!("{}.control", target.name));
    let _ = fs::remove_dir_all(&fresh);
    let _ = fs::remove_file(&control);
    fs::create_dir_all(&fresh)?;
    let mut arguments = vec!["-set_cover_merge=1".to_owned(), shown(place.root, &fresh)];
    let known = [place.grown(target), kept.clone()];
    arguments.extend(known.iter().filter(|folder| folder.is_dir()).map(|folder| shown(place.root, folder)));
    arguments.push(format!("-max_len={}", target.max_len));
    arguments.push(format!("-merge_control_file={}", shown(place.root, &control)));
    let output = place.command(target, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    if !output.status.success() || files(&fresh).is_empty() {
        bail!("{}: {}", target.name, String::from_utf8_lossy(&output.stderr));
    }
    let said = fs::read_to_string(&control).with_context(|| format!("read {}", control.display()))?;
    let best = choose(read(&said));
    let inputs: Vec<Vec<u8>> = best
        .iter()
        .map(|file| fs::read(place.root.join(file)).with_context(|| format!("read {}", file.display())))
        .collect::<Result<_>>()?;
    let _ = fs::remove_dir_all(&kept);
    fs::create_dir_all(&kept)?;
    for (file, input) in best.iter().zip(&inputs) {
        fs::write(kept.join(file.file_name().unwrap_or_default()), input)?;
    }
    Ok(best.len())
}

/// Reads the control file of libFuzzer's merge: `COUNT`, the number of those that were there before, the names; then
/// `STARTED number bytes`, `FT number feature..` for each.
fn read(control: &str) -> Vec<Reached> {
    let mut lines = control.lines();
    let count: usize = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
    let names: Vec<&str> = lines.by_ref().skip(1).take(count).collect();
    let mut sizes = HashMap::new();
    let mut reached = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let (kind, number) = (words.next(), words.next().and_then(|word| word.parse::<usize>().ok()));
        let (Some(kind), Some(number)) = (kind, number) else { continue };
        match (kind, names.get(number)) {
            ("STARTED", _) => drop(sizes.insert(number, words.next().and_then(|word| word.parse().ok()))),
            ("FT", Some(name)) => reached.push(Reached {
                file: PathBuf::from(name),
                size: sizes.get(&number).copied().flatten().unwrap_or(0),
                features: words.filter_map(|word| word.parse().ok()).collect(),
            }),
            _ => {}
        }
    }
    reached
}

/// Picks inputs greedily, each the one with most new features for its cost, as long as there is room.
fn choose(mut reached: Vec<Reached>) -> Vec<PathBuf> {
    let (mut known, mut bytes, mut chosen) = (BTreeSet::new(), 0, Vec::new());
    while chosen.len() < INPUTS_MAX {
        for input in &mut reached {
            input.features.retain(|feature| !known.contains(feature));
        }
        reached.retain(|input| !input.features.is_empty() && bytes + input.size <= BYTES);
        // More features for fewer bytes, compared without fractions.
        let worth = |a: &Reached, b: &Reached| {
            let count = |input: &Reached| u64::try_from(input.features.len()).unwrap_or(u64::MAX);
            (count(a) * (b.size + COST)).cmp(&(count(b) * (a.size + COST)))
        };
        let Some(at) = (0..reached.len()).max_by(|a, b| worth(&reached[*a], &reached[*b])) else { break };
        let best = reached.swap_remove(at);
        bytes += best.size;
        known.extend(best.features);
        chosen.push(best.file);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_output_is_parsed() {
        let control = "2\n0\nc/a\nc/b\nSTARTED 0 10\nFT 0 1 2 3\nCOV 0 7\nSTARTED 1 4\nFT 1 2\nCOV 1 7\n";
        let all = read(control);
        assert_eq!(all[0], Reached { file: "c/a".into(), size: 10, features: vec![1, 2, 3] });
        assert_eq!(all[1], Reached { file: "c/b".into(), size: 4, features: vec![2] });
    }

    #[test]
    fn corpus_keeps_few_inputs_that_reach_most() {
        let input = |name: &str, size, features: &[u32]| Reached {
            file: name.into(),
            size,
            features: features.to_vec(),
        };
        let all = vec![
            input("long", BYTES - 10, &[1, 2, 3, 4]),
            input("short", 20, &[1, 2, 3]),
            input("again", 10, &[1]),
            input("other", 10, &[5]),
        ];
        assert_eq!(choose(all), [PathBuf::from("short"), PathBuf::from("other")]);
        let many = (0..100).map(|at| input(&at.to_string(), 1, &[at])).collect();
        assert_eq!(choose(many).len(), INPUTS_MAX);
    }
}
