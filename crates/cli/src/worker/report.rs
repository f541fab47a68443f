//! Output of the checks.

use std::io;

use serde_json::json;

use super::check::{Check, Status};
use crate::{print::outln, render};

/// Checks of a pool and their outcomes.
pub(super) struct Report<'a> {
    pub(super) pool: &'a str,
    pub(super) tool: String,
    pub(super) workers: Vec<String>,
    pub(super) checks: Vec<Check>,
}

impl Report<'_> {
    pub(super) fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.status() == status).count()
    }

    /// Prints a table, or JSON.
    pub(super) fn print(&self, json: bool) -> io::Result<()> {
        if json {
            return outln!("{}", render::json(&self.to_json()));
        }
        let rows = self.checks.iter().map(|check| {
            let status = match check.status() {
                Status::Ok => render::good("ok"),
                Status::Failed => render::bad("failed"),
                Status::Skipped => render::dim("skipped"),
            };
            vec![check.name.to_owned(), status, render::clean(check.detail())]
        });
        outln!("{}", render::table(&["check", "result", ""], rows))?;
        let (ok, failed, skipped) =
            (self.count(Status::Ok), self.count(Status::Failed), self.count(Status::Skipped));
        outln!(
            "pool {}, tool {}, workers {}: {ok} ok, {failed} failed, {skipped} skipped",
            self.pool,
            render::clean(&self.tool),
            render::clean(&self.workers.join(", "))
        )
    }

    fn to_json(&self) -> serde_json::Value {
        let checks: Vec<_> = self
            .checks
            .iter()
            .map(|check| {
                json!({"name": check.name, "result": check.status().as_str(),
                    "detail": check.detail()})
            })
            .collect();
        json!({
            "pool": self.pool, "tool": self.tool, "workers": self.workers, "checks": checks,
            "ok": self.count(Status::Ok), "failed": self.count(Status::Failed),
            "skipped": self.count(Status::Skipped),
        })
    }
}
