//! Pages of lists. A cursor is opaque, so a chain of pages is known by the cursor that each answer hands out.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::method::ListKind;

/// Cursors that wait to be used, per list.
const MAX_CURSORS: usize = 64;

/// Longer cursors are not followed: their list is never reported as complete.
const MAX_CURSOR: usize = 4096;

/// A page that is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) list: u64,
    pub(super) page: u32,
    pub(super) from_start: bool,
}

/// Chains of one kind of list.
#[derive(Debug, Default)]
struct Chains {
    next_list: u64,
    cursors: VecDeque<(Arc<str>, Place)>,
}

/// Chains of all lists of a session.
#[derive(Debug, Default)]
pub(super) struct Lists {
    kinds: [Chains; 4],
}

impl Lists {
    fn chains(&mut self, kind: ListKind) -> &mut Chains {
        let [tools, prompts, resources, templates] = &mut self.kinds;
        match kind {
            ListKind::Tools => tools,
            ListKind::Prompts => prompts,
            ListKind::Resources => resources,
            ListKind::ResourceTemplates => templates,
        }
    }

    /// A page is asked for. Without a cursor a new list begins; with one that no answer handed out, a list whose
    /// start is not known.
    pub(super) fn ask(&mut self, kind: ListKind, cursor: Option<&str>) -> Place {
        let chains = self.chains(kind);
        if let Some(cursor) = cursor
            && let Some((_, place)) = chains.cursors.iter().rev().find(|(known, _)| &**known == cursor)
        {
            return *place;
        }
        let list = chains.next_list;
        chains.next_list += 1;
        Place {
            list,
            page: 0,
            from_start: cursor.is_none(),
        }
    }

    /// A page has come, with the cursor of the next one.
    pub(super) fn answered(&mut self, kind: ListKind, place: Place, next: &str) {
        if next.len() > MAX_CURSOR {
            return;
        }
        let chains = self.chains(kind);
        if chains.cursors.len() >= MAX_CURSORS {
            chains.cursors.pop_front();
        }
        let place = Place {
            page: place.page.saturating_add(1),
            ..place
        };
        chains.cursors.push_back((Arc::from(next), place));
    }
}
