//! The key for service account tokens: `<data>/pki/sa.key`.

use rcgen::KeyPair;

use super::{Pki, PkiError, failed, files};
use crate::token::SigningKey;

impl Pki {
    /// The key that signs service account tokens; made when missing and kept, so that tokens
    /// outlive a restart.
    pub fn service_account_key(&self) -> Result<SigningKey, PkiError> {
        let path = self.folder.join("sa.key");
        let pem = if let Some(pem) = files::read_file(path.clone())? {
            pem
        } else {
            let pem = KeyPair::generate().map_err(failed("sa"))?.serialize_pem();
            files::write_file(&path, &pem, 0o600)?;
            pem
        };
        Ok(SigningKey::from_pem(&pem)?)
    }
}
