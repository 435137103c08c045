//! `cargo xtask sbom`: what the programs and libraries are made of, as CycloneDX 1.5, and the licences of it all.
//!
//! Both are of what cargo resolves for this platform: normal dependencies of the packages that are shipped, none that only tests or builds
//! need. <https://cyclonedx.org/docs/1.5/json/>

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Packages of what is shipped: commands, daemon, libraries, and what `crosslane lab` runs.
const SHIPPED: [&str; 5] =
    ["crosslane-cli", "crosslane-node", "crosslane-sockets", "crosslane-malloc", "crosslane-lab"];
/// Beginnings of names of files with licences, and of notices that must be passed on.
const LICENCES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// The files that are written.
const SBOM: &str = "sbom.cdx.json";
const TEXTS: &str = "licences.txt";

/// Writes both files into the folder that `words` name.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<()> {
    let [folder] = words else { bail!("usage: cargo xtask sbom FOLDER") };
    let folder = Path::new(folder);
    let metadata = metadata(root)?;
    let packages = Packages::of(&metadata)?;
    let shipped = packages.reached()?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let sbom = serde_json::to_string_pretty(&packages.sbom(&shipped)?)?;
    fs::write(folder.join(SBOM), sbom + "\n").with_context(|| format!("write {SBOM}"))?;
    fs::write(folder.join(TEXTS), packages.texts(&shipped)?).with_context(|| format!("write {TEXTS}"))?;
    println!("{} packages: {}", shipped.len(), folder.join(SBOM).display());
    Ok(())
}

/// What cargo knows of all packages.
fn metadata(root: &Path) -> Result<Value> {
    let platform = host()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &platform]);
    let said = command.current_dir(root).output().context("cargo metadata")?;
    ensure!(said.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice(&said.stdout).context("cargo metadata's JSON")
}

/// The platform that is built for.
fn host() -> Result<String> {
    let said = Command::new("rustc").arg("-vV").output().context("rustc -vV")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_owned())
}

/// All packages and what each uses, by cargo's ids.
struct Packages<'a> {
    packages: BTreeMap<&'a str, &'a Value>,
    uses: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Packages<'a> {
    fn of(metadata: &'a Value) -> Result<Self> {
        let list = |value: &'a Value| value.as_array().context("cargo metadata has another form");
        let mut packages = BTreeMap::new();
        for package in list(&metadata["packages"])? {
            packages.insert(text(package, "id")?, package);
        }
        let mut uses = BTreeMap::new();
        for node in list(&metadata["resolve"]["nodes"])? {
            let normal = list(&node["deps"])?.iter().filter(|dep| {
                let kinds = dep["dep_kinds"].as_array().into_iter().flatten();
                kinds.into_iter().any(|kind| kind["kind"].is_null())
            });
            let used = normal.map(|dep| text(dep, "pkg")).collect::<Result<Vec<_>>>()?;
            uses.insert(text(node, "id")?, used);
        }
        Ok(Self { packages, uses })
    }

    /// Those that are in what is shipped.
    fn reached(&self) -> Result<BTreeSet<&'a str>> {
        let mut open = Vec::new();
        for name in SHIPPED {
            let found = self.packages.iter().find(|(_, package)| package["name"] == name);
            open.push(*found.with_context(|| format!("there is no package {name}"))?.0);
        }
        let mut reached = BTreeSet::new();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(self.uses.get(id).into_iter().flatten());
            }
        }
        Ok(reached)
    }

    /// Name, version, and address of a package.
    fn named(&self, id: &str) -> Result<(&'a str, &'a str, String)> {
        let package = self.packages.get(id).with_context(|| format!("cargo does not know {id}"))?;
        let (name, version) = (text(package, "name")?, text(package, "version")?);
        Ok((name, version, format!("pkg:cargo/{name}@{version}")))
    }

    /// The document.
    fn sbom(&self, shipped: &BTreeSet<&str>) -> Result<Value> {
        let (mut components, mut dependencies) = (Vec::new(), Vec::new());
        for id in shipped {
            let (name, version, address) = self.named(id)?;
            let licence = text(self.packages[id], "license").unwrap_or("NOASSERTION");
            let mut component = json!({
                "type": "library", "bom-ref": address, "name": name, "version": version, "purl": address,
                "licenses": [{ "expression": licence.replace('/', " OR ") }],
            });
            if let Ok(source) = text(self.packages[id], "repository") {
                component["externalReferences"] = json!([{ "type": "vcs", "url": source }]);
            }
            components.push(component);
            let used = self.uses.get(id).into_iter().flatten().map(|used| Ok(self.named(used)?.2));
            dependencies.push(json!({ "ref": address, "dependsOn": used.collect::<Result<Vec<_>>>()? }));
        }
        let version = env!("CARGO_PKG_VERSION");
        let product =
            json!({ "type": "application", "bom-ref": "crosslane", "name": "crosslane", "version": version });
        Ok(json!({
            "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": { "component": product },
            "components": components, "dependencies": dependencies,
        }))
    }

    /// Licences of what others made, the same text once.
    fn texts(&self, shipped: &BTreeSet<&str>) -> Result<String> {
        let mut list = "What Crosslane's programs and libraries are made of that others wrote, and under which licences.\n\n".to_owned();
        let mut by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for id in shipped.iter().filter(|id| !self.packages[**id]["source"].is_null()) {
            let (name, version, _) = self.named(id)?;
            let package = self.packages[id];
            writeln!(list, "{name} {version}: {}", text(package, "license").unwrap_or("see below"))?;
            let folder = Path::new(text(package, "manifest_path")?).parent().context("a folder")?;
            for licence in licences(folder)? {
                by_text.entry(licence).or_default().insert(format!("{name} {version}"));
            }
        }
        for (licence, of) in by_text {
            let of = of.into_iter().collect::<Vec<_>>().join(", ");
            write!(list, "\n{}\n{of}\n\n{}\n", "-".repeat(72), licence.trim_end())?;
        }
        Ok(list)
    }
}

/// The texts in a package's folder.
fn licences(folder: &Path) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for file in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let file = file?;
        let name = file.file_name().to_string_lossy().to_ascii_uppercase();
        if file.file_type()?.is_file() && LICENCES.iter().any(|begin| name.starts_with(begin)) {
            all.push(String::from_utf8_lossy(&fs::read(file.path())?).into_owned());
        }
    }
    Ok(all)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata has no {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbom_has_what_is_shipped_and_nothing_of_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let metadata = metadata(root).unwrap();
        let packages = Packages::of(&metadata).unwrap();
        let shipped = packages.reached().unwrap();
        let names: Vec<&str> = shipped.iter().map(|id| packages.named(id).unwrap().0).collect();
        assert!(names.contains(&"crosslane-wire") && names.contains(&"rustix"), "{names:?}");
        assert!(!names.contains(&"proptest") && !names.contains(&"xtask"), "{names:?}");
        let sbom = packages.sbom(&shipped).unwrap();
        for component in sbom["components"].as_array().unwrap() {
            assert_ne!(component["licenses"][0]["expression"], "NOASSERTION", "{component}");
        }
        let refs: Vec<&Value> =
            sbom["components"].as_array().unwrap().iter().map(|component| &component["bom-ref"]).collect();
        for dependency in sbom["dependencies"].as_array().unwrap() {
            assert!(dependency["dependsOn"].as_array().unwrap().iter().all(|used| refs.contains(&used)));
        }
        let texts = packages.texts(&shipped).unwrap();
        assert!(texts.contains("rustix ") && texts.contains("Permission is hereby granted"));
    }
}
