//! bubblewrap, one of the means that isolate scripts; the tests try each of them.

use anyhow::{Result, bail};

use crate::{apt, broker};

/// Sees to it that bubblewrap is there. With `may_install` it is installed if it is missing and this
/// machine lets us. There is none for systems other than Linux.
pub(crate) fn install(may_install: bool) -> Result<()> {
    let needed = cfg!(target_os = "linux") && broker::find_program("bwrap").is_none();
    if needed && !(may_install && apt::install(&["bubblewrap"])?) {
        bail!("there is no bubblewrap on this machine: apt-get install bubblewrap");
    }
    Ok(())
}
