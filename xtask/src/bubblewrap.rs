//! bubblewrap, one of the sandboxes for scripts; the tests use each of them.

use anyhow::{Result, bail};

use crate::{apt, broker};

/// Ensures on Linux that bubblewrap is available. Installs it with `may_install` if it is missing.
pub(crate) fn install(may_install: bool) -> Result<()> {
    let needed = cfg!(target_os = "linux") && broker::find_program("bwrap").is_none();
    if needed && !(may_install && apt::install(&["bubblewrap"])?) {
        bail!("bubblewrap is not installed: apt-get install bubblewrap");
    }
    Ok(())
}
