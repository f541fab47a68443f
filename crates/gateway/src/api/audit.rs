pub(crate) use crate::guard::{AuditAction, audit};
