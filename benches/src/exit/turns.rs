//! A stack whose node takes turns: as it is, and with nothing but a relist each second.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use swiftlet_tests::stack::{Stack, StackOptions};

/// Turns of each kind: what else happens on the machine meanwhile then hits both.
const TURNS: usize = 2;

/// As `benches/run` starts the stack.
const MAX_PODS: u32 = 250;

/// The stack that takes turns.
pub(super) struct Turns(Stack);

/// The kills of each turn.
pub(super) fn blocks(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..TURNS).map(move |turn| turn * count / TURNS..(turn + 1) * count / TURNS)
}

impl Turns {
    pub(super) fn of(dir: &Path) -> Self {
        let mut options = StackOptions::new(dir);
        options.max_pods = MAX_PODS;
        Self(Stack::find(options))
    }

    /// Starts the node agent anew, with or without sources of events; the pods go on.
    pub(super) fn relist(&mut self, only: bool) -> Result<()> {
        self.0.restart_node_with(|options| {
            let source = if only { "relist" } else { "auto" };
            source.clone_into(&mut options.events);
        })
    }

    /// Leaves the stack to who started it.
    pub(super) fn end(self) {
        self.0.leave_running();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_cover_every_kill_once() {
        let all: Vec<usize> = blocks(201).flatten().collect();
        assert_eq!(all, (0..201).collect::<Vec<_>>());
    }
}
