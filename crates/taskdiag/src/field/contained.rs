//! The names of containers, for the rows of one answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::containers::{self, ContainerNames};
use crate::snapshot::Snapshot;
use crate::wire::ContainerPart;

type Names = Option<Arc<ContainerNames>>;

/// Looks up each path of a control group once for an answer.
#[derive(Debug, Default)]
pub struct ContainerLookup {
    source: Source,
    seen: RefCell<HashMap<Arc<[u8]>, Names>>,
    /// Neighbours in an answer, and the columns of a row, mostly have the same path.
    last: RefCell<Option<(Arc<[u8]>, Names)>>,
}

#[derive(Debug, Default)]
enum Source {
    /// The answer is an older one, or from another machine, and its names were not kept.
    #[default]
    Unknown,
    /// The answer is from this machine.
    Host,
    /// The names were kept with the answer.
    Kept(HashMap<Box<[u8]>, Arc<ContainerNames>>),
}

impl ContainerLookup {
    /// For the rows of this answer.
    pub fn of(snapshot: &Snapshot) -> ContainerLookup {
        let kept = snapshot.stream().containers();
        let source = match snapshot.took() {
            _ if kept.len() > 0 => Source::Kept(
                kept.filter_map(|view| {
                    let path = view.part(ContainerPart::Path)?.ok()?;
                    Some((path.into(), Arc::new(ContainerNames::kept(view))))
                })
                .collect(),
            ),
            Some(_) => Source::Host,
            None => Source::Unknown,
        };
        ContainerLookup { source, ..ContainerLookup::default() }
    }
    /// Calls a function with the names for this path. `None`: it is not that of a container or a
    /// pod.
    pub fn with<T>(&self, path: &[u8], f: impl Fn(&ContainerNames) -> T) -> Option<T> {
        if let Some((last, names)) = &*self.last.borrow() {
            if **last == *path {
                return names.as_deref().map(f);
            }
        }
        let known = self.seen.borrow().get_key_value(path).map(|(p, n)| (p.clone(), n.clone()));
        let (path, names) = known.unwrap_or_else(|| {
            let new: (Arc<[u8]>, Names) = (path.into(), self.look_up(path));
            self.seen.borrow_mut().insert(new.0.clone(), new.1.clone());
            new
        });
        let value = names.as_deref().map(f);
        *self.last.borrow_mut() = Some((path, names));
        value
    }
    fn look_up(&self, path: &[u8]) -> Names {
        let unknown = || {
            let is_one = containers::is_contained(path);
            is_one.then(|| Arc::new(ContainerNames::unknown()))
        };
        match &self.source {
            Source::Host => containers::of_host(path),
            Source::Kept(all) => all.get(path).cloned().or_else(unknown),
            Source::Unknown => unknown(),
        }
    }
}
