//! What is known of a pod's links by the links themselves: a line in their alias.
//!
//! The kernel keeps it as long as the link, so a node that starts again, or whose rules somebody
//! has flushed, finds there what no file has to say.

use std::collections::BTreeMap;

use crate::ipam::allocator::Holder;
use crate::mac::Mac;
use crate::netlink::link::Link;

/// The first word of the alias.
const WORD: &str = "swiftlet-pod";
/// In the place of a hardware address that does not matter.
const NO_MAC: &str = "-";

/// Whose link it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) holder: Holder,
    pub(crate) network: String,
    /// The only source that frames from the link may have, if there is one.
    pub(crate) mac: Option<Mac>,
}

/// Links by name, with their marks.
#[derive(Debug, Default)]
pub(crate) struct Marked(BTreeMap<String, (Mark, Origin)>);

/// When a link was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Made by an earlier process: its pod may have died meanwhile.
    Adopted,
    /// Made since the start.
    Own,
}

impl Mark {
    /// The line.
    pub(crate) fn alias(&self) -> String {
        let Holder {
            container_id,
            ifname,
        } = &self.holder;
        let mac = self.mac.map_or(NO_MAC.to_owned(), |mac| mac.to_string());
        // Neither a container id nor an interface's name has blanks; a network's may have.
        format!("{WORD} {mac} {ifname} {container_id} {}", self.network)
    }

    /// Reads a line; `None` if it is not one of ours.
    pub(crate) fn parse(alias: &str) -> Option<Self> {
        let line = alias.strip_prefix(WORD)?.strip_prefix(' ')?;
        let mut words = line.splitn(4, ' ');
        let mac = match words.next()? {
            NO_MAC => None,
            text => Some(text.parse().ok()?),
        };
        let ifname = words.next()?.to_owned();
        let holder = Holder {
            container_id: words.next()?.to_owned(),
            ifname,
        };
        Some(Self {
            holder,
            network: words.next()?.to_owned(),
            mac,
        })
    }
}

impl Marked {
    /// Takes over what an earlier process left, of the links that `wanted` picks.
    pub(crate) fn adopt(links: &[Link], wanted: impl Fn(&Mark) -> bool) -> Self {
        let marks = links.iter().filter_map(|link| {
            let mark = Mark::parse(link.alias.as_deref()?)?;
            wanted(&mark).then(|| (link.name.clone(), (mark, Origin::Adopted)))
        });
        Self(marks.collect())
    }

    pub(crate) fn insert(&mut self, link: &str, mark: Mark) {
        self.0.insert(link.to_owned(), (mark, Origin::Own));
    }

    pub(crate) fn remove(&mut self, link: &str) -> Option<Mark> {
        self.0.remove(link).map(|(mark, _)| mark)
    }

    pub(crate) fn get(&self, link: &str) -> Option<&Mark> {
        self.0.get(link).map(|(mark, _)| mark)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Mark)> {
        self.0.iter().map(|(link, (mark, _))| (link.as_str(), mark))
    }

    /// The names of links whose mark is picked.
    pub(crate) fn names(&self, picked: impl Fn(&Mark, Origin) -> bool) -> Vec<String> {
        let links = self.0.iter();
        let picked = links.filter(|(_, (mark, origin))| picked(mark, *origin));
        picked.map(|(link, _)| link.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_says_whose_a_link_is_and_no_other_alias_does() {
        let mark = Mark {
            holder: Holder {
                container_id: "c1".into(),
                ifname: "eth0".into(),
            },
            network: "a net of blanks".into(),
            mac: Some(Mac([10, 88, 10, 88, 0, 2])),
        };
        assert_eq!(Mark::parse(&mark.alias()), Some(mark.clone()));
        let without = Mark { mac: None, ..mark };
        assert_eq!(Mark::parse(&without.alias()), Some(without));
        for other in [
            "",
            "swiftlet",
            "swiftlet-pod",
            "swiftlet-pod x eth0 c1 net",
            "wan",
        ] {
            assert_eq!(Mark::parse(other), None, "{other}");
        }
    }
}
