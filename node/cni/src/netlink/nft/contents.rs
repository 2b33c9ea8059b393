//! What is in a table: what a transaction puts there, and what the kernel says that is there.

use std::collections::BTreeMap;

use nix::errno::Errno;

use super::attribute::{find, text, values};
use super::object::LIST_ELEMENT;
use super::{
    GenericHeader, NFT_MSG_GETRULE, NFT_MSG_GETSETELEM, NLM_F_DUMP, NLM_F_REQUEST, Table, message,
    of_nftables,
};
use crate::error::NetworkError;
use crate::netlink::socket::NetlinkSocket;

/// `struct nfgenmsg`.
const GENERIC_HEADER_BYTES: usize = 4;

/// The elements of a map by key; in a set they have no value.
pub(super) type Elements = BTreeMap<Vec<u8>, Vec<u8>>;

/// Rules by number, and elements by what they are: as much as somebody who flushes takes away.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) rules: usize,
    /// By the name of their map or set.
    pub(super) elements: BTreeMap<String, Elements>,
}

impl Contents {
    /// Whether the kernel has the same in the table.
    pub(super) fn are_in(
        &self,
        socket: &mut NetlinkSocket,
        table: Table<'_>,
    ) -> Result<bool, NetworkError> {
        let mut rules = 0;
        each_rule(socket, table, |_| rules += 1)?;
        if rules != self.rules {
            return Ok(false);
        }
        for (set, wanted) in &self.elements {
            if elements(socket, table, set)?.as_ref() != Some(wanted) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The comments of a table's rules, in their order; none if there is no such table.
pub(crate) fn comments(
    socket: &mut NetlinkSocket,
    table: Table<'_>,
) -> Result<Vec<String>, NetworkError> {
    let mut comments = Vec::new();
    each_rule(socket, table, |body| comments.extend(comment(body)))?;
    Ok(comments)
}

fn comment(rule: &[u8]) -> Option<String> {
    let data = find(rule, super::object::NFTA_RULE_USERDATA)?;
    let (kind, rest) = data.split_first()?;
    let (length, text) = rest.split_first()?;
    let text = text.get(..usize::from(*length))?.strip_suffix(&[0])?;
    let text = (*kind == super::object::RULE_COMMENT).then_some(text)?;
    String::from_utf8(text.to_vec()).ok()
}

fn each_rule(
    socket: &mut NetlinkSocket,
    table: Table<'_>,
    each: impl FnMut(&[u8]),
) -> Result<(), NetworkError> {
    const NFTA_RULE_TABLE: u16 = 1;
    let body = text(NFTA_RULE_TABLE, table.name);
    let header = table.family.header();
    dump(socket, NFT_MSG_GETRULE, header, &body, "list rules", each).map(drop)
}

/// `None` if there is no such set.
fn elements(
    socket: &mut NetlinkSocket,
    table: Table<'_>,
    set: &str,
) -> Result<Option<Elements>, NetworkError> {
    const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
    const NFTA_SET_ELEM_LIST_SET: u16 = 2;
    const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
    let mut body = text(NFTA_SET_ELEM_LIST_TABLE, table.name);
    body.extend(text(NFTA_SET_ELEM_LIST_SET, set));
    let (header, step) = (table.family.header(), "list the elements of a set");
    let mut found = Elements::new();
    let exists = dump(socket, NFT_MSG_GETSETELEM, header, &body, step, |body| {
        let list = find(body, NFTA_SET_ELEM_LIST_ELEMENTS).unwrap_or_default();
        found.extend(values(list, LIST_ELEMENT).filter_map(element));
    })?;
    Ok(exists.then_some(found))
}

fn element(body: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    const NFTA_SET_ELEM_KEY: u16 = 1;
    const NFTA_SET_ELEM_DATA: u16 = 2;
    const NFTA_DATA_VALUE: u16 = 1;
    let data = |kind| find(body, kind).and_then(|data| find(data, NFTA_DATA_VALUE));
    let value = data(NFTA_SET_ELEM_DATA).unwrap_or_default();
    Some((data(NFTA_SET_ELEM_KEY)?.to_vec(), value.to_vec()))
}

/// Gives the attributes of each object to `each`. False if what they are in does not exist.
fn dump(
    socket: &mut NetlinkSocket,
    kind: u16,
    header: GenericHeader,
    body: &[u8],
    step: &'static str,
    mut each: impl FnMut(&[u8]),
) -> Result<bool, NetworkError> {
    let mut bytes = Vec::new();
    let (kind, flags) = (of_nftables(kind), NLM_F_REQUEST | NLM_F_DUMP);
    message(socket, &mut bytes, kind, flags, header, body);
    let answered = socket.dump_raw(step, &bytes, |body| {
        each(body.get(GENERIC_HEADER_BYTES..).unwrap_or_default());
    });
    match answered {
        Ok(()) => Ok(true),
        Err(NetworkError::Kernel {
            source: Errno::ENOENT,
            ..
        }) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::rule;
    use super::*;

    #[test]
    fn a_rules_comment_is_read_as_it_was_written() {
        let with = rule("table", "chain", &[], Some("10.88.0.0/16 pods"));
        assert_eq!(comment(&with).as_deref(), Some("10.88.0.0/16 pods"));
        assert_eq!(comment(&rule("table", "chain", &[], None)), None);
        let cut = "n".repeat(300);
        let comment = comment(&rule("table", "chain", &[], Some(&cut))).unwrap();
        assert!(cut.starts_with(&comment) && comment.len() > 200);
    }
}
