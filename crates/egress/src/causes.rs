//! Causes of errors.

use std::error::Error;
use std::io;

/// Iterates over an error and its causes. Unlike [`Error::source`], it includes the error inside an
/// [`io::Error`].
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let cause = |error: &&'a (dyn Error + 'static)| match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => (*error).source(),
    };
    std::iter::successors(Some(error), cause)
}
