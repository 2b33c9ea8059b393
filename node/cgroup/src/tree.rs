//! The folders: made from the root down, removed from the leaves up.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use swiftlet_model::cgroups::{CgroupError, QosClass};
use swiftlet_model::ids::PodUid;
use swiftlet_model::runtime::LinuxResources;
use swiftlet_sys::cgroup::{self, Hierarchies, Mode};

use crate::limits::{self, SHARES_MIN, SHARES_PER_CPU, Setting};

/// How long killed processes may take to leave their cgroup.
const REMOVE_LIMIT: Duration = Duration::from_secs(5);

/// First and last pause between two attempts at removing a cgroup that is busy.
const REMOVE_PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// What a new v1 cpuset must have from its parent before it takes a process.
const CPUSET_FILES: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

/// In the pod folders' names, before the uid.
const POD_PREFIX: &str = "pod";

/// The classes with a folder of their own between the root and the pods.
const CLASSES: [QosClass; 3] = [
    QosClass::Guaranteed,
    QosClass::Burstable,
    QosClass::BestEffort,
];

/// All pod cgroups.
#[derive(Debug)]
pub(crate) struct Tree {
    hierarchies: Hierarchies,
    root: String,
}

impl Tree {
    pub(crate) fn new(hierarchies: Hierarchies, root: &str) -> Self {
        Self {
            hierarchies,
            root: root.trim_matches('/').to_owned(),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.hierarchies.mode
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Makes the pod's folder in each hierarchy, its parents if need be, and writes the limits.
    pub(crate) fn ensure_pod(
        &self,
        pod: &PodUid,
        qos: QosClass,
        resources: &LinuxResources,
    ) -> Result<String, CgroupError> {
        let path = format!("{}/{}", self.class_path(qos), folder_name(pod)?);
        for hierarchy in &self.hierarchies.folders {
            let folder = hierarchy.join(&path);
            let is_new = self.make_pod(hierarchy, &folder, qos)?;
            for setting in limits::pod(self.mode(), resources, is_new) {
                self.apply(hierarchy, &folder, &setting)?;
            }
        }
        Ok(format!("/{path}"))
    }

    /// Limits all pods together, in each hierarchy.
    pub(crate) fn limit_all_pods(&self, resources: &LinuxResources) -> Result<(), CgroupError> {
        for hierarchy in &self.hierarchies.folders {
            self.make_parents(hierarchy, QosClass::Guaranteed)?;
            let root = hierarchy.join(&self.root);
            for setting in limits::all_pods(self.mode(), resources) {
                self.apply(hierarchy, &root, &setting)?;
            }
        }
        Ok(())
    }

    /// Sets the weight of a class, whose folders are made if need be.
    pub(crate) fn class_shares(&self, qos: QosClass, shares: i64) -> Result<(), CgroupError> {
        if qos == QosClass::Guaranteed {
            return Ok(());
        }
        for hierarchy in &self.hierarchies.folders {
            let folder = hierarchy.join(self.class_path(qos));
            if !folder.is_dir() {
                self.make_parents(hierarchy, qos)?;
            }
            self.apply(hierarchy, &folder, &limits::cpu_shares(self.mode(), shares))?;
        }
        Ok(())
    }

    /// Kills what is left of the pod and removes its folders; one that stays does not keep the
    /// others.
    pub(crate) fn remove_pod(&self, pod: &PodUid) -> Result<(), CgroupError> {
        folder_name(pod)?;
        self.remove_folders(&self.pod_folders(pod))
    }

    /// The pods with a folder in any hierarchy.
    pub(crate) fn pods(&self) -> Result<Vec<PodUid>, CgroupError> {
        let mut found = BTreeSet::new();
        for folder in self.class_folders() {
            for child in children(&folder)? {
                let name = child
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                found.extend(name.strip_prefix(POD_PREFIX).map(PodUid::from));
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Removes the root with everything below it.
    pub(crate) fn remove_all(&self) -> Result<(), CgroupError> {
        let roots = self
            .hierarchies
            .folders
            .iter()
            .map(|hierarchy| hierarchy.join(&self.root));
        self.remove_folders(&roots.filter(|folder| folder.is_dir()).collect::<Vec<_>>())
    }

    /// The pod's folders that exist.
    pub(crate) fn pod_folders(&self, pod: &PodUid) -> Vec<PathBuf> {
        let Ok(name) = folder_name(pod) else {
            return Vec::new();
        };
        self.class_folders()
            .map(|folder| folder.join(&name))
            .filter(|it| it.is_dir())
            .collect()
    }

    fn class_folders(&self) -> impl Iterator<Item = PathBuf> {
        let paths = CLASSES.map(|qos| self.class_path(qos));
        let folders = self.hierarchies.folders.iter();
        folders.flat_map(move |hierarchy| paths.clone().map(|path| hierarchy.join(path)))
    }

    /// `kubepods`, `kubepods/burstable` or `kubepods/besteffort`.
    fn class_path(&self, qos: QosClass) -> String {
        match qos {
            QosClass::Guaranteed => self.root.clone(),
            QosClass::Burstable => format!("{}/burstable", self.root),
            QosClass::BestEffort => format!("{}/besteffort", self.root),
        }
    }

    /// Tries the pod's folder first: its parents are missing only for the first pod of a class.
    fn make_pod(
        &self,
        hierarchy: &Path,
        folder: &Path,
        qos: QosClass,
    ) -> Result<bool, CgroupError> {
        let is_new = match cgroup::make(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_parents(hierarchy, qos)?;
                cgroup::make(folder)
            }
            other => other,
        };
        let is_new = is_new.map_err(|error| failed(folder, "mkdir", &error))?;
        // Of an old one too: its making may have been interrupted.
        self.inherit_cpuset(hierarchy, folder)?;
        self.enable_controllers(folder)?;
        Ok(is_new)
    }

    fn make_parents(&self, hierarchy: &Path, qos: QosClass) -> Result<(), CgroupError> {
        self.enable_controllers(hierarchy)?;
        let root = hierarchy.join(&self.root);
        self.make_parent(hierarchy, &root, all_cpus())?;
        match qos {
            QosClass::Guaranteed => Ok(()),
            QosClass::Burstable => {
                let folder = hierarchy.join(self.class_path(qos));
                self.make_parent(hierarchy, &folder, SHARES_PER_CPU)
            }
            QosClass::BestEffort => {
                let folder = hierarchy.join(self.class_path(qos));
                self.make_parent(hierarchy, &folder, SHARES_MIN)
            }
        }
    }

    fn make_parent(&self, hierarchy: &Path, folder: &Path, shares: i64) -> Result<(), CgroupError> {
        cgroup::make(folder).map_err(|error| failed(folder, "mkdir", &error))?;
        self.inherit_cpuset(hierarchy, folder)?;
        self.enable_controllers(folder)?;
        self.apply(hierarchy, folder, &limits::cpu_shares(self.mode(), shares))
    }

    /// On v1 a cpuset that names no CPU or memory node takes no process. One that names some keeps
    /// them: its children may use them.
    fn inherit_cpuset(&self, hierarchy: &Path, folder: &Path) -> Result<(), CgroupError> {
        if self.mode() == Mode::V2 || !serves(hierarchy, "cpuset") {
            return Ok(());
        }
        let parent = folder.parent().unwrap_or(hierarchy);
        for file in CPUSET_FILES {
            let (from, to) = (parent.join(file), folder.join(file));
            let present = std::fs::read_to_string(&to).unwrap_or_default();
            if !present.trim().is_empty() {
                continue;
            }
            let value =
                std::fs::read_to_string(&from).map_err(|error| failed(&from, "read", &error))?;
            cgroup::write(&to, value.trim()).map_err(|error| failed(&to, "write", &error))?;
        }
        Ok(())
    }

    /// On v2 a cgroup's children have the controllers that it hands on.
    fn enable_controllers(&self, folder: &Path) -> Result<(), CgroupError> {
        if self.mode() == Mode::V1 {
            return Ok(());
        }
        let from = folder.join("cgroup.controllers");
        let names =
            std::fs::read_to_string(&from).map_err(|error| failed(&from, "read", &error))?;
        let words: Vec<_> = names
            .split_whitespace()
            .map(|name| format!("+{name}"))
            .collect();
        let to = folder.join("cgroup.subtree_control");
        if words.is_empty() || cgroup::write(&to, &words.join(" ")).is_ok() {
            return Ok(());
        }
        // One controller that cannot be handed on (a realtime process forbids cpu) refuses the
        // whole line, so each gets its own chance; what is then missing fails when its limit is
        // written.
        for word in words {
            cgroup::write(&to, &word).ok();
        }
        Ok(())
    }

    /// Writes a setting if this hierarchy serves its controller.
    fn apply(&self, hierarchy: &Path, folder: &Path, setting: &Setting) -> Result<(), CgroupError> {
        if self.mode() == Mode::V1 && !serves(hierarchy, setting.controller) {
            return Ok(());
        }
        let path = folder.join(&setting.file);
        match cgroup::write(&path, &setting.value) {
            // Who shall have none of what this kernel does not count has none.
            Err(error) if error.kind() == io::ErrorKind::NotFound && setting.is_nothing() => Ok(()),
            other => other.map_err(|error| failed(&path, "write", &error)),
        }
    }

    /// Kills and removes these with all below; repeats until nothing is left or the time is over.
    fn remove_folders(&self, folders: &[PathBuf]) -> Result<(), CgroupError> {
        let deadline = Instant::now() + REMOVE_LIMIT;
        let mut pause = REMOVE_PAUSES.0;
        loop {
            let mut errors = Vec::new();
            for folder in folders {
                self.kill(folder, &mut errors);
            }
            errors.clear();
            for folder in folders {
                remove_tree(folder, &mut errors);
            }
            if errors.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(all_in_one(errors));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(REMOVE_PAUSES.1);
        }
    }

    /// Kills all processes in and below the folder. A fork between the look and the kill is caught
    /// by the next round.
    fn kill(&self, folder: &Path, errors: &mut Vec<CgroupError>) {
        if self.mode() == Mode::V2 && cgroup::kill_tree(folder).is_ok() {
            return;
        }
        for child in cgroup::children(folder).unwrap_or_default() {
            self.kill(&child, errors);
        }
        for pid in cgroup::processes(folder).unwrap_or_default() {
            if let Err(error) = cgroup::kill_process(pid) {
                errors.push(failed(folder, "kill", &error));
            }
        }
    }
}

/// Removes children first; a busy one does not keep its siblings.
fn remove_tree(folder: &Path, errors: &mut Vec<CgroupError>) {
    for child in cgroup::children(folder).unwrap_or_default() {
        remove_tree(&child, errors);
    }
    if let Err(error) = cgroup::remove(folder) {
        errors.push(failed(folder, "rmdir", &error));
    }
}

fn children(folder: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    match cgroup::children(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| failed(folder, "list", &error)),
    }
}

/// Whether a v1 hierarchy has this controller; they are named like `cpu,cpuacct`.
fn serves(hierarchy: &Path, controller: &str) -> bool {
    let name = hierarchy.file_name().unwrap_or_default().to_string_lossy();
    name.split(',').any(|part| part == controller)
}

/// `pod<uid>`. A uid is the API's word, and must not lead out of the tree.
fn folder_name(pod: &PodUid) -> Result<String, CgroupError> {
    let uid = pod.as_str();
    if uid.is_empty() || uid.contains('/') || uid.contains('\0') {
        return Err(CgroupError {
            path: uid.to_owned(),
            operation: "name",
            cause: "not the uid of a pod".to_owned(),
        });
    }
    Ok(format!("{POD_PREFIX}{uid}"))
}

/// The weight of all pods against the rest of the machine: all its CPUs.
fn all_cpus() -> i64 {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    i64::try_from(cpus).unwrap_or(1) * SHARES_PER_CPU
}

fn failed(path: &Path, operation: &'static str, error: &io::Error) -> CgroupError {
    CgroupError {
        path: path.display().to_string(),
        operation,
        cause: error.to_string(),
    }
}

/// The first failure with the others in its words.
fn all_in_one(errors: Vec<CgroupError>) -> CgroupError {
    let mut errors = errors.into_iter();
    let mut first = errors.next().expect("called with at least one error");
    for other in errors {
        first.cause.push_str("; ");
        first.cause.push_str(&other.to_string());
    }
    first
}

#[cfg(test)]
mod tests;
