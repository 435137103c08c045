//! Circles between modules: of two modules that stand beside each other, only one may use the other, by whatever way round.
//!
//! At each level of a crate the modules of one folder are compared, each with all that lies below it. Uses in a
//! parent's own file do not count for its children. Tests are ignored.

use crate::sources::{entries, read, shown};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree};

mod known;

/// The path of a module below its crate: `epoll`, `set`.
type Module = Vec<String>;
/// Which of several modules that stand beside each other use which.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Fails on a circle that is not known, and on a known one that is smaller by now.
pub(crate) fn check(root: &Path) -> Result<()> {
    let (mut found, mut modules) = (BTreeMap::new(), 0);
    for package in entries(&root.join("crates"))? {
        let source = package.join("src");
        if !source.is_dir() {
            continue;
        }
        let uses = uses_of(&source)?;
        modules += uses.len();
        for (level, members) in circles(&uses) {
            let name = [shown(&root.join("crates"), &package), level].join("/");
            found.entry(name.trim_end_matches('/').to_owned()).or_insert_with(Vec::new).push(members);
        }
    }
    ensure!(modules > 0, "no module was found at all: this check looks at the wrong place");
    let wrong = compare(&found, known::KNOWN);
    ensure!(wrong.is_empty(), "modules that use each other in a circle:\n  {}", wrong.join("\n  "));
    let left: usize = found.values().flatten().map(BTreeSet::len).sum();
    println!(
        "circles: {modules} modules, none new; {left} in {} known ones",
        found.values().flatten().count()
    );
    Ok(())
}

/// The differences from the known circles, by place.
fn compare(found: &BTreeMap<String, Vec<BTreeSet<String>>>, known: &[(&str, &[&str])]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut left: Vec<(&str, BTreeSet<String>)> = known
        .iter()
        .map(|(place, names)| (*place, names.iter().map(|name| (*name).to_owned()).collect()))
        .collect();
    for (place, circles) in found {
        for circle in circles {
            match left.iter().position(|(at, names)| at == place && names == circle) {
                Some(at) => drop(left.remove(at)),
                None => wrong.push(format!("{place}: {}", words(circle))),
            }
        }
    }
    wrong.extend(left.iter().map(|(place, names)| {
        format!(
            "{place}: {} is none any more, or smaller: write down what is left in xtask/src/circles/known.rs",
            words(names)
        )
    }));
    wrong
}

fn words(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Each module of the crate in `source`, with those that it uses.
fn uses_of(source: &Path) -> Result<BTreeMap<Module, BTreeSet<Module>>> {
    let mut files = Vec::new();
    collect(source, &mut Vec::new(), &mut files)?;
    let all: BTreeSet<Module> = files.iter().map(|(module, _)| module.clone()).collect();
    let mut uses = BTreeMap::new();
    for (module, file) in files {
        let code = syn::parse_file(&read(&file)?).with_context(|| format!("{}", file.display()))?;
        let mut seen = Seen { module: module.clone(), paths: BTreeSet::new() };
        seen.visit_file(&code);
        let found = seen.paths.iter().filter_map(|path| longest(path, &all)).filter(|used| *used != module);
        let found = found.collect();
        uses.insert(module, found);
    }
    Ok(uses)
}

/// The files below `folder`, which is the folder of `module`, with the modules that they are.
fn collect(folder: &Path, module: &mut Module, files: &mut Vec<(Module, PathBuf)>) -> Result<()> {
    for path in entries(folder)? {
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        module.push(stem.to_owned());
        if path.is_dir() {
            collect(&path, module, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "tests" {
            let is_folders = matches!(stem, "mod" | "lib" | "main");
            let own = if is_folders { &module[..module.len() - 1] } else { &module[..] };
            files.push((own.to_vec(), path));
        }
        module.pop();
    }
    Ok(())
}

/// The deepest module that `path` leads through.
fn longest(path: &[String], all: &BTreeSet<Module>) -> Option<Module> {
    (1..=path.len()).rev().map(|len| path[..len].to_vec()).find(|module| all.contains(module))
}

/// The paths from the crate's root that a file names.
struct Seen {
    module: Module,
    paths: BTreeSet<Vec<String>>,
}

impl Seen {
    fn add(&mut self, path: &[String]) {
        let ups = path.iter().take_while(|name| *name == "super").count();
        let own = || self.module[..self.module.len().saturating_sub(ups)].to_vec();
        let (mut at, rest) = match path.first().map(String::as_str) {
            Some("crate") => (Vec::new(), 1),
            Some("super") => (own(), ups),
            Some("self") => (own(), 1),
            // A child of this module, or a name that is something else.
            Some(_) => (own(), 0),
            None => return,
        };
        at.extend(path[rest..].iter().cloned());
        self.paths.insert(at);
    }

    fn add_tree(&mut self, begin: &[String], tree: &UseTree) {
        let with = |name: String| [begin, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(path.ident.to_string()), &path.tree),
            UseTree::Name(name) => self.add(&with(name.ident.to_string())),
            UseTree::Rename(name) => self.add(&with(name.ident.to_string())),
            UseTree::Glob(_) => self.add(begin),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(begin, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Seen {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_test(&item.attrs) {
            self.add_tree(&[], &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}

/// The circles, each at the path of the folder in which its members stand.
fn circles(uses: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<(String, BTreeSet<String>)> {
    let levels: BTreeSet<Module> =
        uses.keys().flat_map(|module| (0..module.len()).map(|len| module[..len].to_vec())).collect();
    let mut found = Vec::new();
    for level in levels {
        let below = |module: &Module| {
            (module.len() > level.len() && module.starts_with(&level)).then(|| module[level.len()].clone())
        };
        let mut graph = Uses::new();
        for (module, used) in uses {
            let Some(from) = below(module) else { continue };
            let to = used.iter().filter_map(below).filter(|to| *to != from);
            graph.entry(from.clone()).or_default().extend(to);
        }
        found.extend(components(&graph).into_iter().map(|members| (level.join("/"), members)));
    }
    found
}

/// Sets of more than one that reach each other.
fn components(graph: &Uses) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|name| (name, reached(graph, name))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (name, from) in &reach {
        let both = from.iter().filter(|other| reach.get(**other).is_some_and(|back| back.contains(name)));
        let mut members: BTreeSet<String> = both.map(|other| (*other).clone()).collect();
        members.insert((*name).clone());
        if members.len() > 1 && !found.contains(&members) {
            found.push(members);
        }
    }
    found
}

fn reached<'a>(graph: &'a Uses, from: &str) -> BTreeSet<&'a String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(name) = next.pop() {
        for to in graph.get(name).into_iter().flatten() {
            if seen.insert(to) {
                next.push(to);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn module(path: &str) -> Module {
        path.split('/').map(str::to_owned).collect()
    }

    fn graph(edges: &[(&str, &[&str])]) -> BTreeMap<Module, BTreeSet<Module>> {
        edges.iter().map(|(from, to)| (module(from), to.iter().map(|to| module(to)).collect())).collect()
    }

    #[test]
    fn cycle_found_at_each_level_and_through_others() {
        let uses = graph(&[
            ("a", &["b"]),
            ("b", &["c/x"]),
            ("c/x", &["a", "c/y"]),
            ("c/y", &["c/x"]),
            ("d", &["a"]),
        ]);
        let found = circles(&uses);
        assert_eq!(found, [(String::new(), set(&["a", "b", "c"])), ("c".to_owned(), set(&["x", "y"]))]);
        assert!(circles(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])).is_empty());
    }

    #[test]
    fn cycle_paths_resolve_from_their_own_module() {
        let code = "use crate::{a, b::c}; use super::d; use e::F; mod g; \
                    fn h() { crate::i::j(); self::k::l(); super::super::m::n(); }\n\
                    #[cfg(test)] mod tests { use crate::z; }";
        let mut seen = Seen { module: module("p/q"), paths: BTreeSet::new() };
        seen.visit_file(&syn::parse_file(code).unwrap());
        let found: Vec<String> = seen.paths.iter().map(|path| path.join("/")).collect();
        assert_eq!(found, ["a", "b/c", "i/j", "m/n", "p/d", "p/q/e/F", "p/q/k/l"]);
    }

    #[test]
    fn cycle_new_or_gone_is_reported() {
        let found = BTreeMap::from([("node".to_owned(), vec![set(&["a", "b"])])]);
        assert!(compare(&found, &[("node", &["a", "b"])]).is_empty());
        assert_eq!(compare(&found, &[]).len(), 1);
        assert_eq!(compare(&found, &[("node", &["a", "b", "c"])]).len(), 2);
        assert_eq!(compare(&BTreeMap::new(), &[("node", &["a", "b"])]).len(), 1);
    }
}
