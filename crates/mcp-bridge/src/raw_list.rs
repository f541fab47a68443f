//! Lists whose entries are read one by one.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// The maximum number of entries that are read: more than a server can offer tools, so that further ones are
/// reported.
pub(crate) const MAX_ENTRIES: usize = 1001;

/// The first [`MAX_ENTRIES`] entries of a list.
pub(crate) struct RawList<'a> {
    pub(crate) first: Vec<&'a RawValue>,
    /// The number of further entries.
    pub(crate) more: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawList<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = RawList<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let (mut first, mut more) = (Vec::new(), 0);
                while first.len() < MAX_ENTRIES {
                    let Some(entry) = items.next_element()? else {
                        return Ok(RawList { first, more });
                    };
                    first.push(entry);
                }
                while items.next_element::<IgnoredAny>()?.is_some() {
                    more += 1;
                }
                Ok(RawList { first, more })
            }
        }

        deserializer.deserialize_seq(List)
    }
}
