//! A copy of the API's objects: one writer, any number of readers that never block.

use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::OrdMap;
use tokio::sync::watch;

use crate::client::{Object, ObjectKey};

/// An index: the values under which an object can be found, such as its node's name.
pub struct Index<T> {
    /// The index's name, for [`Snapshot::by_index`].
    pub name: &'static str,
    /// The values of one object.
    pub values: fn(&T) -> Vec<String>,
}

/// All objects at one moment; it never changes.
pub struct Snapshot<T> {
    objects: OrdMap<ObjectKey, Arc<T>>,
    index: OrdMap<IndexKey, Arc<T>>,
}

/// Index name, value, object: sorted, so that a value's objects stand together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IndexKey {
    name: &'static str,
    value: String,
    object: ObjectKey,
}

/// The readers' side. Cheap to clone.
pub struct Store<T> {
    shared: Arc<ArcSwap<Snapshot<T>>>,
    synced: watch::Receiver<bool>,
}

/// The one writer.
pub struct Writer<T> {
    shared: Arc<ArcSwap<Snapshot<T>>>,
    synced: watch::Sender<bool>,
    indexes: Vec<Index<T>>,
    current: Snapshot<T>,
}

/// A change with what was and what is.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// The object was not there before.
    Added(Arc<T>),
    /// The object changed.
    Updated {
        /// What was.
        old: Arc<T>,
        /// What is.
        new: Arc<T>,
    },
    /// The object is gone; its last known state.
    Deleted(Arc<T>),
}

impl<T> Change<T> {
    /// The newest state.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Self::Added(object) | Self::Updated { new: object, .. } | Self::Deleted(object) => {
                object
            }
        }
    }
}

/// Makes a writer and its store.
pub fn reflector<T: Object>(indexes: Vec<Index<T>>) -> (Writer<T>, Store<T>) {
    let shared = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
    let (synced, receiver) = watch::channel(false);
    let store = Store {
        shared: Arc::clone(&shared),
        synced: receiver,
    };
    (
        Writer {
            shared,
            synced,
            indexes,
            current: Snapshot::default(),
        },
        store,
    )
}

impl<T: Object> Writer<T> {
    /// Replaces everything; answers what changed. Afterwards the store counts as synced.
    pub fn restart(&mut self, objects: Vec<Arc<T>>) -> Vec<Change<T>> {
        let mut gone = self.current.objects.clone();
        let mut changes = Vec::new();
        for object in objects {
            gone.remove(&object.key());
            self.insert(object, &mut changes);
        }
        for object in gone.values() {
            changes.extend(self.remove(object));
        }
        self.publish();
        self.synced.send_replace(true);
        changes
    }

    /// Stores an object; empty when nothing changed.
    pub fn apply(&mut self, object: Arc<T>) -> Vec<Change<T>> {
        let mut changes = Vec::new();
        self.insert(object, &mut changes);
        self.publish();
        changes
    }

    /// Removes an object; `None` when it was not there.
    pub fn delete(&mut self, object: &Arc<T>) -> Option<Change<T>> {
        let change = self.remove(object);
        self.publish();
        change
    }

    fn insert(&mut self, new: Arc<T>, changes: &mut Vec<Change<T>>) {
        let key = new.key();
        let old = self.current.objects.insert(key.clone(), Arc::clone(&new));
        if let Some(old) = &old {
            self.unindex(old, &key);
        }
        for index in &self.indexes {
            for value in (index.values)(&new) {
                let key = IndexKey {
                    name: index.name,
                    value,
                    object: key.clone(),
                };
                self.current.index.insert(key, Arc::clone(&new));
            }
        }
        match old {
            None => changes.push(Change::Added(new)),
            Some(old) if old.revision() == new.revision() && new.revision() != 0 => (),
            // Another object of the same name: the deletion of the first one was missed.
            Some(old) if old.uid() != new.uid() => {
                changes.extend([Change::Deleted(old), Change::Added(new)]);
            }
            Some(old) => changes.push(Change::Updated { old, new }),
        }
    }

    fn remove(&mut self, last: &Arc<T>) -> Option<Change<T>> {
        let key = last.key();
        let old = self.current.objects.remove(&key)?;
        self.unindex(&old, &key);
        Some(Change::Deleted(Arc::clone(last)))
    }

    fn unindex(&mut self, object: &T, key: &ObjectKey) {
        for index in &self.indexes {
            for value in (index.values)(object) {
                let key = IndexKey {
                    name: index.name,
                    value,
                    object: key.clone(),
                };
                self.current.index.remove(&key);
            }
        }
    }

    fn publish(&self) {
        self.shared.store(Arc::new(self.current.clone()));
    }
}

impl<T> Store<T> {
    /// The newest snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot<T>> {
        self.shared.load_full()
    }

    /// Whether the first list has arrived.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits for the first list; false when the writer ended before.
    pub async fn wait_synced(&self) -> bool {
        self.synced.clone().wait_for(|synced| *synced).await.is_ok()
    }

    /// One object, from the newest snapshot.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.shared.load().get(key).cloned()
    }
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            synced: self.synced.clone(),
        }
    }
}

impl<T> Snapshot<T> {
    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<T>> {
        self.objects.get(key)
    }

    /// All objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.values()
    }

    /// The objects of a namespace, by name.
    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<T>> {
        self.objects
            .range(ObjectKey::new(namespace, "")..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// The objects with a value in an index.
    pub fn by_index<'a>(
        &'a self,
        index: &'static str,
        value: &'a str,
    ) -> impl Iterator<Item = &'a Arc<T>> {
        let start = IndexKey {
            name: index,
            value: value.to_owned(),
            object: ObjectKey::default(),
        };
        self.index
            .range(start..)
            .take_while(move |(key, _)| key.name == index && key.value == value)
            .map(|(_, object)| object)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

impl<T> Default for Snapshot<T> {
    fn default() -> Self {
        Self {
            objects: OrdMap::new(),
            index: OrdMap::new(),
        }
    }
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            index: self.index.clone(),
        }
    }
}
