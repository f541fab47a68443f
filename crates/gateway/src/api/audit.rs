//! Audit records of requests.

pub(crate) use crate::guard::{AuditAction, audit};
