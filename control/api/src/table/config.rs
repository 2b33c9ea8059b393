//! ConfigMaps, Secrets, ServiceAccounts and Leases.

use super::Printer;
use super::column::{Column, count_at, created, name};
use crate::strategy::text_at;

pub(super) const CONFIG_MAPS: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Data", "How many entries the configuration has."),
        Column::AGE,
    ],
    cells: |map, now| {
        let entries = count_at(map, "/data") + count_at(map, "/binaryData");
        vec![name(map), entries.into(), created(map, now)]
    },
};

pub(super) const SECRETS: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text(
            "Type",
            "Used to facilitate programmatic handling of secret data.",
        ),
        Column::text("Data", "How many entries the secret has."),
        Column::AGE,
    ],
    cells: |secret, now| {
        let kind = text_at(secret, "/type").into();
        vec![
            name(secret),
            kind,
            count_at(secret, "/data").into(),
            created(secret, now),
        ]
    },
};

pub(super) const SERVICE_ACCOUNTS: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Secrets", "How many secrets the account names."),
        Column::AGE,
    ],
    cells: |account, now| {
        vec![
            name(account),
            count_at(account, "/secrets").into(),
            created(account, now),
        ]
    },
};

pub(super) const LEASES: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Holder", "The identity of the holder of the lease."),
        Column::AGE,
    ],
    cells: |lease, now| {
        vec![
            name(lease),
            text_at(lease, "/spec/holderIdentity").into(),
            created(lease, now),
        ]
    },
};
