//! The layout's rules, checked on the tree itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Longest source file, in lines.
const FILE_LINES_MAX: usize = 500;
/// Longest line, in columns.
const COLUMNS_MAX: usize = 100;

/// Row of each crate; a crate uses lower rows only (docs/ARCHITECTURE.md).
const ROWS: [(&str, u8); 25] = [
    ("swiftlet-proto", 0),
    ("swiftlet-ebpf-abi", 0),
    ("swiftlet-sys", 0),
    ("swiftlet-model", 1),
    ("swiftlet-client", 1),
    ("swiftlet-cri", 2),
    ("swiftlet-cni", 2),
    ("swiftlet-pleg", 2),
    ("swiftlet-volume", 2),
    ("swiftlet-probe", 2),
    ("swiftlet-node-link", 2),
    ("swiftlet-source", 2),
    ("swiftlet-cgroup", 2),
    ("swiftlet-pressure", 2),
    ("swiftlet-server", 2),
    ("swiftlet-kubelet", 2),
    ("swiftlet-store", 2),
    ("swiftlet-api", 2),
    ("swiftlet-link", 2),
    ("swiftlet-scheduler", 2),
    ("swiftlet-controllers", 2),
    ("swiftlet-node", 3),
    ("swiftlet-control", 3),
    ("swiftlet-tests", 4),
    ("swiftlet-benches", 4),
];

/// Edges within a row that the design names.
const EDGES_WITHIN_ROW: [(&str, &str); 2] = [
    ("swiftlet-api", "swiftlet-store"),
    ("swiftlet-benches", "swiftlet-tests"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

/// Every tracked or new file with this ending.
fn files(ending: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("readable").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if path.is_dir() {
                if name != "target" && name != ".git" {
                    walk(&path, ending, found);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), ending, &mut found);
    found.sort();
    found
}

fn none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn dependencies_point_one_way() {
    let metadata = MetadataCommand::new()
        .current_dir(root())
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let rows: BTreeMap<_, _> = ROWS.into_iter().collect();
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some(row) = rows.get(name) else {
            problems.push(format!("{name} has no row"));
            continue;
        };
        let normal = package
            .dependencies
            .iter()
            .filter(|used| used.kind == DependencyKind::Normal);
        for used in normal
            .map(|used| used.name.as_str())
            .filter(|used| rows.contains_key(used))
        {
            if rows[used] >= *row && !EDGES_WITHIN_ROW.contains(&(name, used)) {
                problems.push(format!("{name} must not use {used}"));
            }
        }
    }
    none(&problems);
}

#[test]
fn files_fit_a_screen_or_a_few() {
    let mut problems = Vec::new();
    for file in files(".rs") {
        let text = std::fs::read_to_string(&file).expect("readable");
        if text.lines().count() > FILE_LINES_MAX {
            problems.push(format!(
                "{}: {} lines",
                file.display(),
                text.lines().count()
            ));
        }
        for (number, line) in text.lines().enumerate() {
            // A text that is printed on one line may stand on one.
            let is_text = line.trim_start().starts_with('"');
            if line.chars().count() > COLUMNS_MAX && !is_text {
                problems.push(format!("{}:{}: too long", file.display(), number + 1));
            }
        }
    }
    none(&problems);
}

#[test]
fn no_room_is_a_drawer() {
    let drawers = ["util", "utils", "common", "helpers", "misc", "mod"];
    let is_drawer = |path: &PathBuf| {
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        drawers.contains(&&*stem)
    };
    let problems: Vec<_> = files(".rs")
        .into_iter()
        .filter(is_drawer)
        .map(|path| path.display().to_string())
        .collect();
    none(&problems);
}

#[test]
fn unsafe_lives_in_its_rooms() {
    let mut problems = Vec::new();
    for (name, _) in ROWS.iter().filter(|(name, _)| *name != "swiftlet-sys") {
        let metadata = MetadataCommand::new()
            .current_dir(root())
            .no_deps()
            .exec()
            .expect("metadata");
        let package = metadata
            .packages
            .iter()
            .find(|package| package.name == name);
        let package = package.unwrap_or_else(|| panic!("{name} is a member"));
        for target in package
            .targets
            .iter()
            .filter(|target| target.is_lib() || target.is_bin())
        {
            let text = std::fs::read_to_string(&target.src_path).expect("readable");
            if !text.contains("#![forbid(unsafe_code)]") {
                problems.push(format!("{} does not forbid unsafe code", target.src_path));
            }
        }
    }
    none(&problems);
}

#[test]
fn the_kubelet_does_not_know_its_adapters() {
    let words = ["containerd", "netlink", "ebpf", "io_uring"];
    let mut problems = Vec::new();
    for file in files(".rs")
        .iter()
        .filter(|file| file.starts_with(root().join("node/kubelet")))
    {
        let text = std::fs::read_to_string(file)
            .expect("readable")
            .to_lowercase();
        let said: Vec<&str> = text
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        for word in words.iter().filter(|word| said.contains(word)) {
            problems.push(format!("{} says {word}", file.display()));
        }
    }
    none(&problems);
}

#[test]
fn paths_in_the_documents_exist() {
    let mut problems = Vec::new();
    for document in files(".md") {
        let text = std::fs::read_to_string(&document).expect("readable");
        // Every `a/b.rs`, `a/b.md`, `a/b/` in backticks is a path from the root.
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = quoted.contains('/')
                && !quoted.contains([' ', '<', '*', '{', '$', '~', ':', '…'])
                && !quoted.starts_with('/')
                && [".rs", ".md", ".proto", ".toml", "/"]
                    .iter()
                    .any(|end| quoted.ends_with(end));
            if is_path && !root().join(quoted).exists() {
                problems.push(format!("{}: {quoted}", document.display()));
            }
        }
    }
    none(&problems);
}

#[test]
fn the_pods_journey_is_where_the_document_says() {
    let text = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("readable");
    let journey = text
        .split("```text")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let journey = journey.expect("the document opens with the journey");
    let paths: Vec<_> = journey
        .split_whitespace()
        .filter(|word| Path::new(word).extension().is_some_and(|end| end == "rs"))
        .collect();
    assert!(paths.len() >= 14, "{paths:?}");
    let missing: Vec<_> = paths
        .iter()
        .filter(|path| !root().join(path).exists())
        .map(ToString::to_string)
        .collect();
    none(&missing);
}
